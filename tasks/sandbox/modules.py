"""What programs may import: the standard library's computing modules, loaded before the doors close."""

__all__ = ["PROGRAM_MODULES"]

_NAMES = """
__future__ _strptime abc argparse array ast asyncio base64 binascii bisect builtins calendar cmath codecs
collections.abc colorsys concurrent.futures contextlib contextvars copy copyreg csv dataclasses datetime decimal
difflib enum errno fileinput fnmatch fractions functools gc graphlib hashlib heapq hmac html inspect io
itertools json keyword linecache locale logging math numbers operator os.path pathlib pickle platform pprint
queue random re reprlib sched secrets shlex signal statistics string stringprep struct sys tempfile textwrap
threading time timeit token tokenize traceback types typing unicodedata unittest.mock urllib.parse uuid warnings
weakref xml.etree.ElementTree zlib zoneinfo encodings.ascii encodings.base64_codec encodings.cp1252
encodings.hex_codec encodings.idna encodings.latin_1 encodings.punycode encodings.raw_unicode_escape
encodings.rot_13 encodings.unicode_escape encodings.utf_16 encodings.utf_16_be encodings.utf_16_le
encodings.utf_32 encodings.utf_32_be encodings.utf_32_le encodings.utf_8 encodings.utf_8_sig
"""
PROGRAM_MODULES = tuple(_NAMES.split())
