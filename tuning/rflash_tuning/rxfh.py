# SPDX-License-Identifier: GPL-2.0
"""What ethtool can do by ioctl only: driver, RSS table and key, flow rules.

Structures of include/uapi/linux/ethtool.h, in the machine's byte order:

struct ethtool_drvinfo (196 bytes)
    0 cmd, 4 driver[32], 36 version[32], 68 fw_version[32], 100 bus_info[32], ...
struct ethtool_rxfh (24 bytes and what follows)
    0 cmd, 4 rss_context, 8 indir_size, 12 key_size (all u32), 16 hfunc,
    17 input_xfrm (reserved before 6.8), 18 reserved[2], 20 reserved,
    24 rss_config: indir_size x u32, then key_size bytes
struct ethtool_rxnfc (192 bytes; its list of locations begins at 188)
    0 cmd, 4 flow_type, 8 data (u64), 16 fs, 184 rule_cnt, 188 rule_locs (u32 each)
struct ethtool_rx_flow_spec (168 bytes)
    0 flow_type, 4 h_u[52], 56 h_ext[20], 76 m_u[52], 128 m_ext[20],
    152 ring_cookie (u64), 160 location; m_ are masks: a bit that is 1 must match
struct ethtool_tcpip4_spec in h_u and m_u, network byte order
    0 ip4src, 4 ip4dst, 8 psrc (u16), 10 pdst, 12 tos (u8)
struct ethtool_tcpip6_spec
    0 ip6src[16], 16 ip6dst[16], 32 psrc, 34 pdst, 36 tclass
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import ipaddress
import socket
import struct
from typing import Any

_SIOCETHTOOL = 0x8946
_GDRVINFO = 0x03
_GRSSH, _SRSSH = 0x46, 0x47
_GRXCLSRLCNT, _GRXCLSRULE, _GRXCLSRLALL, _SRXCLSRLDEL, _SRXCLSRLINS = 0x2E, 0x2F, 0x30, 0x31, 0x32

_FUNCTIONS = {1: "toeplitz", 2: "xor", 4: "crc32"}  # ETH_RSS_HASH_*
_NO_CHANGE = 0xFFFFFFFF  # ETH_RXFH_INDIR_NO_CHANGE
_FLOWS = {1: "tcp4", 5: "tcp6"}
_KINDS = {name: kind for kind, name in _FLOWS.items()}
_OTHER_FLOWS = {2: "udp4", 3: "sctp4", 4: "ah4", 6: "udp6", 7: "sctp6", 8: "ah6", 13: "ip4", 14: "ip6", 18: "ether"}
_FLOW_FLAGS = 0xE0000000  # FLOW_EXT, FLOW_MAC_EXT, FLOW_RSS
_SPEC = 16  # where the flow specification begins
_COUNT = 184
_LOCATIONS = 188
_RXNFC = 192
_RING = 0xFFFFFFFF
_DISCARD = 0xFFFFFFFFFFFFFFFF
_NAME = 16  # IFNAMSIZ


def _call(nic: str, request: bytes | bytearray) -> bytes:
    """One SIOCETHTOOL. Returns the structure as the kernel left it. Raises OSError."""
    name = nic.encode()
    if len(name) >= _NAME:
        raise OSError(errno.ENODEV, f"'{nic}' is too long for a network interface's name")
    buffer = ctypes.create_string_buffer(bytes(request), len(request))
    ifreq = struct.pack(f"={_NAME}sP16x".replace("=", "@"), name, ctypes.addressof(buffer))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as handle:
        fcntl.ioctl(handle, _SIOCETHTOOL, ifreq)
    return buffer.raw


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode(errors="replace")


def driver(nic: str) -> dict[str, str]:
    """Driver, its version, firmware and bus address; "" where the driver says nothing."""
    raw = _call(nic, struct.pack("=I", _GDRVINFO).ljust(196, b"\0"))
    return {
        name: _text(raw[at : at + 32]) for name, at in (("driver", 4), ("version", 36), ("firmware", 68), ("bus", 100))
    }


# RSS


def _read_rss(nic: str) -> tuple[list[int], bytes, int, int]:
    """Table, key, function bits and input transformation."""
    sizes = _call(nic, struct.pack("=I", _GRSSH).ljust(24, b"\0"))
    entries, key_size = struct.unpack_from("=II", sizes, 8)
    request = bytearray(24 + 4 * entries + key_size)
    struct.pack_into("=IIII", request, 0, _GRSSH, 0, entries, key_size)
    raw = _call(nic, request)
    listed = list(struct.unpack_from(f"={entries}I", raw, 24))
    key = raw[24 + 4 * entries : 24 + 4 * entries + key_size]
    return listed, key, raw[16], raw[17]


def rss(nic: str) -> dict[str, Any]:
    """The default context's table, key (hexadecimal) and hash function."""
    entries, key, function, _ = _read_rss(nic)
    return {"table": entries, "key": key.hex(), "function": _FUNCTIONS.get(function, "")}


def set_rss(nic: str, values: dict[str, Any]) -> None:
    """Table ([]: the driver's default one), key and function; what is not given stays. Raises OSError."""
    unknown = set(values) - {"table", "key", "function"}
    if unknown:
        raise OSError(errno.EOPNOTSUPP, f"there is no RSS setting '{min(unknown)}'")
    *_, transformation = _read_rss(nic)
    wanted = values.get("table")
    key = bytes.fromhex(values.get("key", ""))
    function = next((bit for bit, name in _FUNCTIONS.items() if name == values.get("function")), 0)
    entries = _NO_CHANGE if wanted is None else len(wanted)
    request = struct.pack("=IIIIBB2xI", _SRSSH, 0, entries, len(key), function, transformation, 0)
    _call(nic, request + struct.pack(f"={len(wanted or [])}I", *(wanted or [])) + key)


# Flow rules


def rules(nic: str) -> dict[str, dict[str, Any]]:
    """Location, as text -> the rule, with the fields of model.Rule."""
    raw = _call(nic, _rxnfc(_GRXCLSRLCNT))
    count = struct.unpack_from("=I", raw, _COUNT)[0]
    if not count:
        return {}
    request = bytearray(_rxnfc(_GRXCLSRLALL).ljust(_RXNFC + 4 * count, b"\0"))
    struct.pack_into("=I", request, _COUNT, count)
    raw = _call(nic, request)
    found = struct.unpack_from("=I", raw, _COUNT)[0]
    locations = sorted(struct.unpack_from(f"={min(found, count)}I", raw, _LOCATIONS))
    return {str(location): parse_rule(_call(nic, _rxnfc(_GRXCLSRULE, location))) for location in locations}


def set_rules(nic: str, values: dict[str, dict[str, Any] | None]) -> None:
    """Put rules at locations, None deletes. Raises OSError (ENOENT: there is none to delete)."""
    for location, rule in values.items():
        if rule is None:
            _call(nic, _rxnfc(_SRXCLSRLDEL, int(location)))
    for location, rule in values.items():
        if rule is not None:
            _call(nic, pack_rule(int(location), rule))


def _rxnfc(command: int, location: int = 0) -> bytes:
    request = bytearray(_RXNFC)
    struct.pack_into("=I", request, 0, command)
    struct.pack_into("=I", request, _SPEC + 160, location)
    return bytes(request)


def pack_rule(location: int, rule: dict[str, Any]) -> bytes:
    """A struct ethtool_rxnfc that inserts a rule. Raises OSError (EOPNOTSUPP) for what we can't express."""
    kind = _KINDS.get(rule["flow"])
    if kind is None or rule.get("other"):
        raise OSError(errno.EOPNOTSUPP, f"a flow rule of kind '{rule['flow']}' {rule.get('other', '')}".rstrip())
    value, mask = bytearray(52), bytearray(52)
    width, ports = (4, 8) if rule["flow"] == "tcp4" else (16, 32)
    for offset, port in ((ports, rule.get("src_port")), (ports + 2, rule.get("dst_port"))):
        if port is not None:
            struct.pack_into(">H", value, offset, port)
            struct.pack_into(">H", mask, offset, 0xFFFF)
    if rule.get("dst_ip"):
        packed = ipaddress.ip_address(rule["dst_ip"]).packed
        if len(packed) != width:
            raise OSError(errno.EINVAL, f"{rule['dst_ip']} is no address of {rule['flow']}")
        value[width : 2 * width] = packed
        mask[width : 2 * width] = b"\xff" * width
    request = bytearray(_RXNFC)
    struct.pack_into("=I", request, 0, _SRXCLSRLINS)
    struct.pack_into("=I", request, _SPEC, kind)
    request[_SPEC + 4 : _SPEC + 56] = value
    request[_SPEC + 76 : _SPEC + 128] = mask
    struct.pack_into("=QI", request, _SPEC + 152, rule["queue"], location)
    return bytes(request)


def parse_rule(raw: bytes) -> dict[str, Any]:
    """The rule of a struct ethtool_rxnfc. What it also matches on is named in `other`, for people."""
    flow_type = struct.unpack_from("=I", raw, _SPEC)[0]
    value, mask = bytearray(raw[_SPEC + 4 : _SPEC + 56]), bytearray(raw[_SPEC + 76 : _SPEC + 128])
    cookie = struct.unpack_from("=Q", raw, _SPEC + 152)[0]
    kind = flow_type & ~_FLOW_FLAGS
    rule: dict[str, Any] = {
        "flow": _FLOWS.get(kind, _OTHER_FLOWS.get(kind, f"type {kind}")),
        "dst_port": None,
        "queue": -1 if cookie >= _DISCARD - 1 else cookie & _RING,
        "src_port": None,
        "dst_ip": None,
    }
    other = [name for bit, name in ((31, "VLAN or data"), (30, "MAC"), (29, "RSS context")) if flow_type >> bit & 1]
    if cookie >= _DISCARD - 1:
        other.append("discard")
    if kind in _FLOWS:
        width, ports = (4, 8) if rule["flow"] == "tcp4" else (16, 32)
        for name, at in (("src_port", ports), ("dst_port", ports + 2)):
            if mask[at : at + 2] == b"\xff\xff":
                rule[name] = struct.unpack_from(">H", value, at)[0]
                mask[at : at + 2] = b"\0\0"
        if mask[width : 2 * width] == b"\xff" * width:
            rule["dst_ip"] = str(ipaddress.ip_address(bytes(value[width : 2 * width])))
            mask[width : 2 * width] = bytes(width)
    if any(mask):
        other.append("more fields")
    rule["other"] = ", ".join(other)
    return rule
