"use strict";
// Tables sort by a click on a heading; long ones show their first rows, and can be searched. Without this script all is there.
(function () {
  const NUMBER = /^[+-]?\d[\d,]*(\.\d+)?(e[+-]?\d+)?/i;
  const collator = new Intl.Collator("en", { numeric: true });

  function numberOf(text) {
    const found = NUMBER.exec(text);
    return found ? parseFloat(found[0].replace(/,/g, "")) : null;
  }

  // Missing entries stay last, whichever way a column is sorted.
  function compare(a, b, numeric, sign) {
    if (!numeric) return sign * collator.compare(a, b);
    const x = numberOf(a), y = numberOf(b);
    if (x === null || y === null) return (x === null) - (y === null);
    return sign * (x - y);
  }

  function enhance(table) {
    const body = table.tBodies[0], rows = Array.from(body.rows), shown = Number(table.dataset.shown);
    const entry = (row, column) => row.cells[column].textContent.trim();
    const texts = new Map(rows.map((row) => [row, Array.from(row.cells, (cell) => cell.textContent.toLowerCase()).join(" ")]));
    let order = rows, all = rows.length <= shown, words = [];
    let more = null;

    function show() {
      const fitting = new Set(order.filter((row) => words.every((word) => texts.get(row).includes(word))));
      let position = 0;
      for (const row of order) row.hidden = !fitting.has(row) || (!all && ++position > shown);
      body.append(...order);
      if (more) {
        more.hidden = all || fitting.size <= shown;
        more.textContent = "Show all " + fitting.size.toLocaleString("en") + " rows (" + shown + " shown)";
      }
    }

    Array.from(table.tHead.rows[0].cells).forEach((heading, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.title = "sort by this column";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => {
        const next = { ascending: "descending", descending: "none" }[heading.getAttribute("aria-sort")] || "ascending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        if (next !== "none") heading.setAttribute("aria-sort", next);
        const sign = next === "descending" ? -1 : 1, numeric = heading.classList.contains("number");
        order = next === "none" ? rows : rows.slice().sort((a, b) => compare(entry(a, column), entry(b, column), numeric, sign));
        show();
      });
    });

    if (rows.length > 20) {
      const search = document.createElement("input");
      search.type = "search";
      search.placeholder = "filter " + rows.length.toLocaleString("en") + " rows";
      search.setAttribute("aria-label", search.placeholder);
      search.addEventListener("input", () => {
        words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
        show();
      });
      table.parentNode.before(search);
    }
    if (!all) {
      more = document.createElement("button");
      more.type = "button";
      more.className = "more";
      more.addEventListener("click", () => { all = true; show(); });
      table.parentNode.after(more);
      show();
    }
  }

  for (const table of document.querySelectorAll("table[data-shown]")) enhance(table);
  // Paper has nothing to click: closed parts are open while it prints, and headings are text, which browsers repeat on
  // every sheet (they do not repeat buttons).
  let opened = [], buttons = [];
  addEventListener("beforeprint", () => {
    opened = Array.from(document.querySelectorAll("details:not([open])"));
    for (const part of opened) part.open = true;
    buttons = Array.from(document.querySelectorAll("thead button"), (button) => [button.parentNode, button]);
    for (const [, button] of buttons) button.replaceWith(...button.childNodes);
  });
  addEventListener("afterprint", () => {
    for (const part of opened) part.open = false;
    for (const [heading, button] of buttons) {
      button.append(...heading.childNodes);
      heading.append(button);
    }
  });
})();
