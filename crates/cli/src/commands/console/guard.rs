//! Which requests may see a page, and which may act: pure.
//!
//! A page on the loopback interface can be reached by every program of the machine, and by every web page that is open in
//! the user's browser. So each request shows three things: a `Host` that is this console's (a web page whose name was rebound
//! to this address has another one), a cookie that only the start URL gives, and, to act, an `Origin` that is this console's
//! and a word that only its own pages know.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use axum::http::{HeaderMap, HeaderName, StatusCode, Uri, header};
use subtle::ConstantTimeEq;

use crate::shared::exit::{Exit, Failure};

/// How many browsers are known at once.
const MOST_VISITS: usize = 64;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) reason: &'static str,
}

const MISDIRECTED: Refusal = Refusal {
    status: StatusCode::MISDIRECTED_REQUEST,
    reason: "This console does not answer to this host name. Use the address that it printed when it started, or start it \
             with --allow-host NAME.",
};

const FOREIGN: Refusal = Refusal {
    status: StatusCode::FORBIDDEN,
    reason: "This request does not come from a page of this console, so it is not carried out.",
};

pub(super) const UNKNOWN: Refusal = Refusal {
    status: StatusCode::UNAUTHORIZED,
    reason: "This browser is not known to the console. Open the address that lockkeeper console printed when it started: it \
             has a token that lets the browser in.",
};

/// A browser that has shown the token.
#[derive(Clone, Debug)]
pub(super) struct Visit {
    cookie: String,
    /// What a form of this browser's pages has.
    pub(super) form_key: String,
    /// The name that was typed in last.
    pub(super) name: String,
}

/// What lets requests in.
#[derive(Debug)]
pub(super) struct Gate {
    names: Vec<String>,
    token: String,
    cookie_name: String,
    visits: Mutex<VecDeque<Visit>>,
}

impl Gate {
    /// A gate with a new token. `id` tells the cookies of several consoles on one host apart.
    pub(super) fn new(names: Vec<String>, id: u32) -> Result<Self, Failure> {
        let names = names.into_iter().map(|name| name.to_ascii_lowercase()).collect();
        let cookie_name = format!("lockkeeper-console-{id}");
        Ok(Self { names, token: secret()?, cookie_name, visits: Mutex::default() })
    }

    /// What the start URL has.
    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// Whether a request is for this console: its `Host`, and the host of its target if that has one. `own` is the address
    /// at which it arrived; `None` at a Unix socket.
    pub(super) fn check_host(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        own: Option<IpAddr>,
    ) -> Result<(), Refusal> {
        let mut hosts = headers.get_all(header::HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return Err(MISDIRECTED) };
        let host = host.to_str().map_err(|_| MISDIRECTED)?;
        let is_ours = |host: &str| self.is_own_name(host, own);
        match is_ours(host) && uri.authority().is_none_or(|target| is_ours(target.as_str())) {
            true => Ok(()),
            false => Err(MISDIRECTED),
        }
    }

    fn is_own_name(&self, host: &str, own: Option<IpAddr>) -> bool {
        let Some(name) = without_port(host) else { return false };
        if let Ok(ip) = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            let own = own.map(|own| own.to_canonical());
            return ip.is_loopback()
                || own == Some(ip.to_canonical())
                || self.names.iter().any(|own| *own == name);
        }
        let name = name.to_ascii_lowercase();
        name == "localhost" || name.ends_with(".localhost") || self.names.contains(&name)
    }

    /// Whether a request that changes something comes from a page of this console.
    pub(super) fn check_origin(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let host = text(headers, &header::HOST).unwrap_or_default();
        let origin = headers.get(header::ORIGIN).map(|_| {
            let origin = text(headers, &header::ORIGIN).unwrap_or_default();
            let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            rest.is_some_and(|origin| origin.eq_ignore_ascii_case(host))
        });
        let site = headers.get(FETCH_SITE).map(|site| site == "same-origin");
        match (origin, site) {
            (Some(true), None | Some(true)) | (None, Some(true)) => Ok(()),
            _ => Err(FOREIGN),
        }
    }

    /// Lets a browser in that has the token. Returns the cookie by which it is known from then on.
    pub(super) fn enter(&self, token: &str) -> Result<Option<String>, Failure> {
        if !is_same(token, &self.token) {
            return Ok(None);
        }
        let visit = Visit { cookie: secret()?, form_key: secret()?, name: String::new() };
        let cookie =
            format!("{}={}; Path=/; HttpOnly; SameSite=Strict", self.cookie_name, visit.cookie);
        let mut visits = self.visits.lock().unwrap_or_else(PoisonError::into_inner);
        visits.push_back(visit);
        if visits.len() > MOST_VISITS {
            visits.pop_front();
        }
        Ok(Some(cookie))
    }

    /// The browser that a request is from.
    pub(super) fn visit(&self, headers: &HeaderMap) -> Result<Visit, Refusal> {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|all| all.to_str().ok());
        let cookies =
            cookies.flat_map(|all| all.split(';')).filter_map(|one| one.trim().split_once('='));
        let shown: Vec<_> = cookies.filter(|(name, _)| *name == self.cookie_name).collect();
        let visits = self.visits.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known =
            |visit: &&Visit| shown.iter().any(|(_, value)| is_same(value, &visit.cookie));
        visits.iter().find(is_known).cloned().ok_or(UNKNOWN)
    }

    /// Whether a form is one of this browser's pages.
    pub(super) fn check_form(&self, visit: &Visit, key: &str) -> Result<(), Refusal> {
        if is_same(key, &visit.form_key) { Ok(()) } else { Err(FOREIGN) }
    }

    /// Keeps the name that a person has typed in, for the next form.
    pub(super) fn keep_name(&self, visit: &Visit, name: &str) {
        let mut visits = self.visits.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = visits.iter_mut().find(|known| known.cookie == visit.cookie) {
            name.clone_into(&mut known.name);
        }
    }
}

/// The host without its port; `None` if it is not written as a host is.
fn without_port(host: &str) -> Option<&str> {
    let name = match host.rfind(']') {
        Some(end) if host.starts_with('[') => {
            let rest = &host[end + 1..];
            (rest.is_empty() || is_port(rest)).then_some(&host[..=end])?
        }
        Some(_) => return None,
        None => match host.split_once(':') {
            Some((name, port)) => port.bytes().all(|byte| byte.is_ascii_digit()).then_some(name)?,
            None => host,
        },
    };
    (!name.is_empty()).then_some(name)
}

fn is_port(text: &str) -> bool {
    text.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Compares in a time that does not tell where they differ.
fn is_same(given: &str, own: &str) -> bool {
    given.as_bytes().ct_eq(own.as_bytes()).into()
}

/// 128 bits of chance.
fn secret() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        Failure::new(Exit::System, format!("cannot read random numbers: {error}"))
    })?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn gate() -> Gate {
        Gate::new(vec!["Locks.example".to_owned()], 7).unwrap()
    }

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in all {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn host(hosts: &[&str], own: &str) -> bool {
        let hosts: Vec<_> = hosts.iter().map(|host| ("host", *host)).collect();
        gate().check_host(&Uri::from_static("/"), &headers(&hosts), own.parse().ok()).is_ok()
    }

    /// A name that an attacker's name server points at this machine arrives here with that name in `Host`.
    #[test]
    fn only_own_hosts_are_answered() {
        for own in [
            "127.0.0.1:80",
            "127.0.0.1",
            "[::1]:80",
            "localhost:9",
            "LOCALHOST",
            "a.localhost:1",
            "locks.example",
            "LOCKS.example:443",
            "10.1.2.3:80",
        ] {
            assert!(host(&[own], "10.1.2.3"), "{own}");
        }
        for other in [
            "evil.example",
            "127.0.0.1.evil.example",
            "10.1.2.4",
            "localhost.evil.example",
            "",
            ":80",
            "locks.example.",
            "[::1",
            "[::1]x",
            "127.0.0.1:80:80",
            "x@localhost",
            "localhost:80@evil.example",
            "evillocalhost",
            "0.0.0.0",
        ] {
            assert!(!host(&[other], "10.1.2.3"), "{other}");
        }
        assert!(!host(&[], "127.0.0.1") && !host(&["localhost", "localhost"], "127.0.0.1"));
        assert!(host(&["10.1.2.3"], "::ffff:10.1.2.3") && !host(&["10.1.2.3"], ""));
    }

    #[test]
    fn the_target_of_a_request_is_checked_too() {
        let headers = headers(&[("host", "localhost")]);
        let check = |uri| gate().check_host(&Uri::from_static(uri), &headers, None);
        assert!(check("http://localhost/locks").is_ok());
        assert_eq!(check("http://evil.example/locks"), Err(MISDIRECTED));
    }

    #[test]
    fn a_form_comes_from_a_page_of_ours() {
        let check = |all: &[_]| gate().check_origin(&headers(all)).is_ok();
        let host = ("host", "localhost:80");
        assert!(check(&[host, ("origin", "http://localhost:80")]));
        assert!(check(&[
            host,
            ("origin", "https://LOCALHOST:80"),
            ("sec-fetch-site", "same-origin")
        ]));
        assert!(check(&[host, ("sec-fetch-site", "same-origin")]));
        for other in [
            &[host][..],
            &[host, ("origin", "null")],
            &[host, ("origin", "http://localhost:81")],
            &[host, ("origin", "http://evil.example")],
            &[host, ("origin", "http://evil.example"), ("sec-fetch-site", "same-origin")],
            &[host, ("origin", "http://localhost:80"), ("sec-fetch-site", "cross-site")],
            &[host, ("sec-fetch-site", "same-site")],
            &[host, ("sec-fetch-site", "none")],
        ] {
            assert!(!check(other), "{other:?}");
        }
    }

    #[test]
    fn a_browser_is_known_by_its_cookie_alone() {
        let gate = gate();
        assert!(
            gate.enter("").unwrap().is_none() && gate.enter(&"0".repeat(32)).unwrap().is_none()
        );
        let cookie = gate.enter(gate.token()).unwrap().expect("it is the token");
        assert!(cookie.ends_with("; HttpOnly; SameSite=Strict"), "{cookie}");
        let (pair, _) = cookie.split_once(';').unwrap();
        let known = gate.visit(&headers(&[("cookie", &format!("a=b; {pair}"))])).unwrap();

        for other in [
            "",
            "lockkeeper-console-7=",
            "lockkeeper-console-7",
            &pair[..pair.len() - 1],
            &format!("lockkeeper-console-7={}", gate.token()),
            &format!("x{pair}"),
        ] {
            assert!(gate.visit(&headers(&[("cookie", other)])).is_err(), "{other}");
        }
        let other = gate.enter(gate.token()).unwrap().unwrap();
        assert_ne!(cookie, other);
        let (pair, _) = other.split_once(';').unwrap();
        let other = gate.visit(&headers(&[("cookie", pair)])).unwrap();
        assert!(gate.check_form(&known, &known.form_key).is_ok());
        assert!(
            gate.check_form(&other, &known.form_key).is_err()
                && gate.check_form(&known, "").is_err()
        );
    }

    #[test]
    fn the_number_of_browsers_is_bounded() {
        let gate = gate();
        for _ in 0..2 * MOST_VISITS {
            gate.enter(gate.token()).unwrap();
        }
        assert_eq!(gate.visits.lock().unwrap().len(), MOST_VISITS);
    }
}
