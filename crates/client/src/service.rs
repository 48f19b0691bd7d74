//! What is known about the servers being one service, and how it is decided. No I/O.
//!
//! Two services that do not share a server may each grant the same lock. So the service of a session must
//! have a majority of the servers in the connection string: two clients with the same connection string then
//! have a server in common, and therefore use the same service.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lockkeeper_wire::{SessionId, ZnodePath};
use tokio::sync::watch;

use crate::connect_string::Host;
use crate::server::Server;

/// Why the servers of a connection string are not known to be one service.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// A server belongs to a different service than the one that this client is connected to.
    #[error(
        "{other} and {own} are not one service: what was just written to {own} is not on {other}, so \
         each would grant the same lock; name the servers of one ensemble only"
    )]
    NotOne {
        /// The server that this client is connected to.
        own: String,
        /// The other server.
        other: String,
    },
    /// Too few servers are reachable to decide, and the client is
    /// [strict](crate::ClientBuilder::strict_servers).
    #[error("{}; start them, or name only reachable servers", unproven(*own, *all, unreachable))]
    Unproven {
        /// How many servers are known to be one service.
        own: usize,
        /// The number of servers.
        all: usize,
        /// The servers that did not reply, with the reasons.
        unreachable: Vec<(String, String)>,
    },
    /// The node used for the comparison was deleted.
    #[error("{node} was deleted before its servers could be compared; try again")]
    NodeGone {
        /// The node.
        node: ZnodePath,
    },
}

/// The message that these servers could not be compared.
pub(crate) fn unproven(own: usize, all: usize, unreachable: &[(String, String)]) -> String {
    let servers: Vec<_> = unreachable.iter().map(|(name, why)| format!("{name} ({why})")).collect();
    format!(
        "cannot determine whether the servers are one service: only {own} of {all} are known to be; \
         no reply from: {}",
        servers.join(", ")
    )
}

/// What a server shows about the node of this client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The node exists, so the server belongs to the client's own service.
    Own,
    /// The node certainly does not exist there.
    Other,
    /// The server did not reply, for this reason.
    Nothing(String),
}

/// What follows from the replies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// The client's own service has a majority of the servers.
    OneService,
    /// This server belongs to a different service.
    OtherService(Server),
    /// This many more servers must show the node.
    Undecided(usize),
    /// Too many servers did not reply.
    Unproven { own: usize, all: usize },
}

/// A server and its reply; `None` if it was not asked yet.
pub(crate) type Asked = (Server, Option<Seen>);

/// Decides from the replies so far.
pub(crate) fn judge(servers: &[Asked]) -> Judgement {
    let other = |(server, seen): &Asked| (*seen == Some(Seen::Other)).then(|| server.clone());
    if let Some(server) = servers.iter().find_map(other) {
        return Judgement::OtherService(server);
    }

    let all = servers.iter().filter(|(server, _)| !is_out_of_reach(server, servers)).count();
    let count =
        |wanted: fn(&Option<Seen>) -> bool| servers.iter().filter(|(_, seen)| wanted(seen)).count();
    let (own, open) = (count(|seen| *seen == Some(Seen::Own)), count(Option::is_none));
    match (all / 2 + 1).saturating_sub(own) {
        0 => Judgement::OneService,
        missing if missing <= open => Judgement::Undecided(missing),
        _ => Judgement::Unproven { own, all },
    }
}

/// Whether this is an address of a host that is reachable only over the other address family: this machine
/// may not have a route for the family, or the host may not serve it.
fn is_out_of_reach(server: &Server, servers: &[Asked]) -> bool {
    let Some(address) = server.address else { return false };
    let is_alike = |other: IpAddr| other.is_ipv4() == address.is_ipv4();
    let of_host = servers.iter().filter(|(other, _)| other.host == server.host);
    let (alike, unlike): (Vec<_>, Vec<_>) =
        of_host.partition(|(other, _)| other.address.is_some_and(is_alike));

    unlike.iter().any(|(_, seen)| *seen == Some(Seen::Own))
        && alike.iter().all(|(_, seen)| matches!(seen, Some(Seen::Nothing(_))))
}

/// How a check of the servers ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    /// The result for the connection with this number.
    Decided(u64, Result<(), ServiceError>),
    /// The node was deleted, although its session is alive.
    NodeGone,
    /// The connection or the session ended during the check.
    Undecided,
}

/// What is known about the servers of a client.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) hosts: Vec<Host>,
    pub(crate) is_strict: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    decided: Option<(u64, Result<(), ServiceError>)>,
    /// The servers that are known to belong to the session's service.
    own: BTreeSet<Server>,
    session: SessionId,
    under_way: Option<watch::Receiver<Option<Compared>>>,
    /// The last warning.
    warned: Option<String>,
}

impl Service {
    pub(crate) fn new(hosts: Vec<Host>, is_strict: bool) -> Self {
        Self { hosts, is_strict, state: Mutex::default() }
    }

    /// Whether the hosts may be several servers.
    pub(crate) fn may_be_several(&self) -> bool {
        match self.hosts.as_slice() {
            [Host::Tcp { name, .. }] => name.parse::<IpAddr>().is_err(),
            [Host::Unix(_)] => false,
            _ => true,
        }
    }

    /// The result for the connection with this number.
    pub(crate) fn decided(&self, connection: u64) -> Option<Result<(), ServiceError>> {
        let state = self.state();
        let (number, decided) = state.decided.as_ref()?;
        (*number == connection).then(|| decided.clone())
    }

    /// The check in progress, or a new one, whose result `begin` must send.
    pub(crate) fn compare(
        &self,
        begin: impl FnOnce(watch::Sender<Option<Compared>>),
    ) -> watch::Receiver<Option<Compared>> {
        let mut state = self.state();
        let under_way = state.under_way.take();
        // The check has ended if its sender was dropped, also with the runtime of its task.
        let under_way = under_way.filter(|compared| compared.has_changed().is_ok());
        let compared = under_way.unwrap_or_else(|| {
            let (tell, compared) = watch::channel(None);
            begin(tell);
            compared
        });
        state.under_way = Some(compared.clone());
        compared
    }

    /// Records how a check ended, unless it must be repeated at the next grant.
    pub(crate) fn note(&self, compared: &Compared) {
        if let Compared::Decided(number, decided) = compared {
            let passes = matches!(decided, Err(ServiceError::Unproven { .. }));
            let mut state = self.state();
            state.decided = (!passes).then(|| (*number, decided.clone()));
        }
    }

    /// Adds servers that belong to the service of this session.
    pub(crate) fn add_own(&self, session: SessionId, servers: impl Iterator<Item = Server>) {
        let mut state = self.state();
        if state.session != session {
            state.session = session;
            state.own.clear();
        }
        state.own.extend(servers);
    }

    /// Whether a server is known to belong to the service of this session.
    pub(crate) fn is_own(&self, session: SessionId, server: &Server) -> bool {
        let state = self.state();
        state.session == session && state.own.contains(server)
    }

    /// Whether this differs from the last warning.
    pub(crate) fn is_news(&self, warning: &str) -> bool {
        let mut state = self.state();
        let is_news = state.warned.as_deref() != Some(warning);
        state.warned = Some(warning.to_owned());
        is_news
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str, address: Option<&str>) -> Server {
        let host = Host::Tcp { name: name.to_owned(), port: 2181 };
        Server { host, address: address.map(|address| address.parse().unwrap()) }
    }

    /// The decision for servers that show: `o`wn, `x` another service, `-` no reply, `?` not asked.
    fn judged(seen: &str) -> Judgement {
        let servers: Vec<_> = seen
            .chars()
            .enumerate()
            .map(|(number, seen)| (server(&format!("zk{number}"), None), shown(seen)))
            .collect();
        judge(&servers)
    }

    fn shown(seen: char) -> Option<Seen> {
        match seen {
            'o' => Some(Seen::Own),
            'x' => Some(Seen::Other),
            '-' => Some(Seen::Nothing("no answer".to_owned())),
            _ => None,
        }
    }

    #[test]
    fn a_majority_of_the_servers_has_to_show_the_node() {
        for (seen, expected) in [
            ("o", Judgement::OneService),
            ("o?", Judgement::Undecided(1)),
            ("o-", Judgement::Unproven { own: 1, all: 2 }),
            ("oo", Judgement::OneService),
            ("o??", Judgement::Undecided(1)),
            ("o-?", Judgement::Undecided(1)),
            ("o-o", Judgement::OneService),
            ("o--", Judgement::Unproven { own: 1, all: 3 }),
            ("oo??", Judgement::Undecided(1)),
            ("oo--", Judgement::Unproven { own: 2, all: 4 }),
            ("ooo?", Judgement::OneService),
            ("o????", Judgement::Undecided(2)),
        ] {
            assert_eq!(judged(seen), expected, "{seen}");
        }
    }

    /// {A, B} and {C, D} in one connection string: one check of B would have been enough for a client of A.
    #[test]
    fn one_server_of_another_service_refutes_whatever_the_others_show() {
        for seen in ["ox", "oo?x", "oox", "o-x", "ooox"] {
            assert!(matches!(judged(seen), Judgement::OtherService(_)), "{seen}");
        }
    }

    #[test]
    fn a_family_without_a_way_is_left_out_if_the_host_answers_by_the_other() {
        let of_one_name = |seen: [(&str, char); 2]| {
            judge(&seen.map(|(address, seen)| (server("zk", Some(address)), shown(seen))))
        };
        assert_eq!(of_one_name([("10.0.0.1", 'o'), ("fd00::1", '-')]), Judgement::OneService);
        let two = of_one_name([("10.0.0.1", 'o'), ("10.0.0.2", '-')]);
        assert_eq!(two, Judgement::Unproven { own: 1, all: 2 });
        assert!(matches!(
            of_one_name([("10.0.0.1", 'o'), ("fd00::1", 'x')]),
            Judgement::OtherService(_)
        ));
    }

    #[test]
    fn only_names_and_lists_may_stand_for_several_servers() {
        for (text, several) in [
            ("127.0.0.1:2181", false),
            ("[::1]:2181", false),
            ("unix:/run/engine.sock", false),
            ("zk:2181", true),
            ("10.0.0.1,10.0.0.2", true),
        ] {
            let hosts = text.parse::<crate::ConnectString>().unwrap().hosts;
            assert_eq!(Service::new(hosts, false).may_be_several(), several, "{text}");
        }
    }
}
