//! The hosts for which an HTTP server on a loopback address answers.

use std::net::IpAddr;

/// Whether a `Host` header names an IP address, this machine as `localhost`, or one of these names. Any port may
/// follow. A web page can only have an IP address of this machine as its origin if this machine served it, so addresses
/// need no list.
pub(super) fn is_allowed(header: &[u8], names: &[String]) -> bool {
    let Some(host) = std::str::from_utf8(header).ok().and_then(|text| without_port(text.trim()))
    else {
        return false;
    };
    if let Some(address) = host.strip_prefix('[') {
        return address
            .strip_suffix(']')
            .is_some_and(|text| matches!(text.parse(), Ok(IpAddr::V6(_))));
    }
    if matches!(host.parse(), Ok(IpAddr::V4(_))) {
        return true;
    }
    let host = normal(host);
    host.eq_ignore_ascii_case("localhost")
        || names.iter().any(|name| normal(name).eq_ignore_ascii_case(host))
}

/// A name with a dot at its end is the same name in full.
fn normal(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// The `HOST` of `HOST:PORT` or `HOST`; `None` if the text after the host is not a port.
fn without_port(text: &str) -> Option<&str> {
    // The colons of an IPv6 address are in brackets.
    let after_host = text.rfind(']').map_or(0, |end| end + 1);
    match text[after_host..].rfind(':') {
        None => Some(text),
        Some(colon) => {
            let port = &text[after_host + colon + 1..];
            port.bytes().all(|b| b.is_ascii_digit()).then_some(&text[..after_host + colon])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_localhost_and_listed_names_are_allowed() {
        let names = ["metrics.example".to_owned(), "zk1.".to_owned()];
        for host in [
            "localhost",
            "LocalHost:7000",
            "localhost.",
            "localhost.:7000",
            "127.0.0.1",
            "127.0.0.1:7000",
            "127.9.9.9",
            "192.0.2.1:7000",
            "[::1]",
            "[::1]:7000",
            "[2001:DB8::1]:7000",
            "METRICS.example:7000",
            "metrics.example.",
            "zk1",
            "localhost:",
        ] {
            assert!(is_allowed(host.as_bytes(), &names), "{host}");
        }
        for host in [
            "",
            ".",
            ":7000",
            "attacker.example",
            "attacker.example:7000",
            "localhost.attacker.example",
            "127.0.0.1.attacker.example",
            "metrics.example.attacker",
            "localhost..",
            "localhost:x",
            "a:localhost:7000",
            "user@localhost",
            "::1",
            "[::1",
            "[127.0.0.1]",
            "[::1].attacker.example",
            "[::1]attacker:7000",
            "2130706433",
            "127.1",
        ] {
            assert!(!is_allowed(host.as_bytes(), &names), "{host}");
        }
        assert!(!is_allowed(b"\xff", &names));
        assert!(!is_allowed(b"metrics.example", &[]));
    }
}
