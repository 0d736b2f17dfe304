// SPDX-License-Identifier: GPL-2.0-only
//! Addresses as people write them: IPv4 and IPv6 literals, host names, ports.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc;
use std::time::Duration;

use crate::control::Address;

/// An address or a name that stands for some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Literal(Address),
    Name(String),
}

/// Tell literals from names, and refuse what is neither. IPv6 literals may be
/// in brackets.
pub fn parse(text: &str) -> Result<Target, String> {
    if text.is_empty() {
        return Err("it is empty: give an IPv4 or IPv6 address or a host name".to_string());
    }
    let bracketed = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    if bracketed.is_some() || text.contains(':') || text.contains(['[', ']']) {
        return parse_v6(bracketed.unwrap_or(text), text).map(Target::Literal);
    }
    if let Ok(ip) = text.parse::<Ipv4Addr>() {
        return Ok(Target::Literal(Address {
            ip: IpAddr::V4(ip),
            scope: None,
        }));
    }
    if text.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return Err(format!(
            "{text:?} is not an IPv4 address: give four numbers of 0 to 255, as in 192.0.2.1"
        ));
    }
    let label = |l: &str| {
        (1..=63).contains(&l.len())
            && !l.starts_with('-')
            && !l.ends_with('-')
            && l.bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    let name = text.strip_suffix('.').unwrap_or(text);
    if name.len() > 253 || !name.split('.').all(label) {
        return Err(format!("{text:?} is neither an IP address nor a host name"));
    }
    Ok(Target::Name(text.to_string()))
}

fn parse_v6(literal: &str, given: &str) -> Result<Address, String> {
    let (address, scope) = match literal.split_once('%') {
        Some((address, scope)) => (address, Some(scope)),
        None => (literal, None),
    };
    let Ok(ip) = address.parse::<Ipv6Addr>() else {
        return Err(format!(
            "{given:?} is not an IPv6 address: give groups of hexadecimal digits, as in \
             2001:db8::1, without a port (that is -s)"
        ));
    };
    let link_local = ip.segments().first().is_some_and(|s| s & 0xffc0 == 0xfe80);
    match scope {
        Some("") => Err(format!(
            "{given:?} has an empty scope: name an interface behind the %"
        )),
        Some(_) if !link_local => Err(format!(
            "{given:?} has a scope, which only link-local addresses (fe80::…) may have"
        )),
        None if link_local => Err(format!(
            "{given:?} is link-local: name the interface, as in {address}%eth0"
        )),
        scope => Ok(Address {
            ip: IpAddr::V6(ip),
            scope: scope.map(str::to_string),
        }),
    }
}

/// All addresses of a target, in the order of the resolver.
pub fn resolve(target: &Target, timeout: Duration) -> Result<Vec<Address>, String> {
    let name = match target {
        Target::Literal(address) => return Ok(vec![address.clone()]),
        Target::Name(name) => name.clone(),
    };
    // The resolver has no time limit of its own that we could set.
    let (sender, receiver) = mpsc::channel();
    let query = name.clone();
    std::thread::spawn(move || {
        let found = (query.as_str(), 0).to_socket_addrs();
        let _ = sender.send(found.map(|all| all.map(|a| a.ip()).collect::<Vec<_>>()));
    });
    match receiver.recv_timeout(timeout) {
        Ok(Ok(mut found)) => {
            let mut seen = Vec::new();
            found.retain(|ip| {
                let new = !seen.contains(ip);
                seen.push(*ip);
                new
            });
            Ok(found
                .into_iter()
                .map(|ip| Address { ip, scope: None })
                .collect())
        }
        Ok(Err(_)) => Err(format!("the host name {name:?} has no address")),
        Err(_) => Err(format!(
            "the host name {name:?} could not be looked up in {} s",
            timeout.as_secs()
        )),
    }
}

/// A port number.
pub fn parse_port(text: &str) -> Result<u16, String> {
    match text.parse::<u64>() {
        Ok(0) => Err("port 0 cannot be connected to: give 1 to 65535".to_string()),
        Ok(port) => {
            u16::try_from(port).map_err(|_| format!("port {port} does not exist: give 1 to 65535"))
        }
        Err(_) => Err(format!(
            "{text:?} is not a port: give a number of 1 to 65535"
        )),
    }
}

/// For connecting from user space.
pub fn socket_addr(address: &Address, port: u16) -> Result<SocketAddr, String> {
    match (address.ip, &address.scope) {
        (IpAddr::V6(ip), Some(scope)) => {
            let index = match scope.parse::<u32>() {
                Ok(index) => index,
                Err(_) => interface_index(scope)
                    .ok_or_else(|| format!("there is no network interface {scope:?}"))?,
            };
            Ok(std::net::SocketAddrV6::new(ip, port, 0, index).into())
        }
        (ip, _) => Ok(SocketAddr::new(ip, port)),
    }
}

fn interface_index(name: &str) -> Option<u32> {
    if name.contains('/') {
        return None;
    }
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/ifindex")).ok()?;
    text.trim().parse().ok()
}

/// Two spellings of one address.
pub fn same(a: &str, b: &Address) -> bool {
    match parse(a) {
        Ok(Target::Literal(address)) => address == *b,
        _ => a == b.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn literal(text: &str) -> String {
        match parse(text) {
            Ok(Target::Literal(a)) => a.to_string(),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn literals() {
        assert_eq!(literal("192.0.2.1"), "192.0.2.1");
        assert_eq!(literal("2001:DB8:0::1"), "2001:db8::1");
        assert_eq!(literal("[::1]"), "::1");
        assert_eq!(literal("fe80::1%eth0"), "fe80::1%eth0");
        assert_eq!(literal("[fe80::1%2]"), "fe80::1%2");
    }

    #[test]
    fn names() {
        for name in [
            "localhost",
            "flash-1.example.com",
            "flash.example.com.",
            "a1",
        ] {
            assert_eq!(parse(name), Ok(Target::Name(name.to_string())));
        }
    }

    #[test]
    fn neither() {
        for (text, part) in [
            ("", "empty"),
            ("10.0.0.300", "not an IPv4 address"),
            ("10.0.0", "not an IPv4 address"),
            ("10", "not an IPv4 address"),
            ("2001:db8::1::2", "not an IPv6 address"),
            ("::g", "not an IPv6 address"),
            ("[::1", "not an IPv6 address"),
            ("[::1]:4420", "not an IPv6 address"),
            ("10.0.0.1:4420", "not an IPv6 address"),
            ("[10.0.0.1]", "not an IPv6 address"),
            ("fe80::1", "link-local"),
            ("fe80::1%", "empty scope"),
            ("2001:db8::1%eth0", "only link-local"),
            ("a b", "neither"),
            ("-a", "neither"),
            ("a..b", "neither"),
            ("fl\u{e4}sh", "neither"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn ports() {
        assert_eq!(parse_port("4420"), Ok(4420));
        assert!(parse_port("0").unwrap_err().contains("port 0"));
        assert!(parse_port("65536").unwrap_err().contains("65536"));
        assert!(parse_port("http").unwrap_err().contains("not a port"));
        assert!(parse_port("-1").is_err());
    }

    #[test]
    fn comparing() {
        let Ok(Target::Literal(a)) = parse("2001:db8::1") else {
            panic!()
        };
        assert!(same("2001:0db8:0:0::1", &a));
        assert!(!same("2001:db8::2", &a));
    }

    proptest! {
        #[test]
        fn never_panics(s in ".*") {
            let _ = parse(&s);
            let _ = parse_port(&s);
        }

        #[test]
        fn every_literal_is_understood(ip: IpAddr) {
            let text = ip.to_string();
            match parse(&text) {
                Ok(Target::Literal(a)) => prop_assert_eq!(a.ip, ip),
                Ok(Target::Name(_)) => prop_assert!(false),
                Err(e) => prop_assert!(e.contains("link-local"), "{}", e),
            }
        }
    }
}
