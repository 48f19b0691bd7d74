//! Derives findings from what was examined. No I/O.

use std::fmt;
use std::time::Duration;

use lockkeeper::{Exposure, LeaseMode, Timing, Zxid};
use serde::Serialize;

use crate::shared::view::printable;

/// The result of examining a service.
#[derive(Debug)]
pub(super) struct Service {
    /// Whether this machine's engine is the server because no servers are configured.
    pub(super) is_unnamed: bool,
    pub(super) servers: Vec<Server>,
    /// The timing that follows from the granted session timeout.
    pub(super) timing: Timing,
    pub(super) mode: LeaseMode,
    /// The value of `--server-tick`.
    pub(super) told_tick: Duration,
    /// The longest of the servers' shortest session timeouts.
    pub(super) shortest: Option<Duration>,
    pub(super) room: RoomLeft,
    /// How long some commits took, or why they were not measured.
    pub(super) commits: Result<Vec<Duration>, String>,
    /// The minimum difference between our clock and that of the server that commits.
    pub(super) skew: Option<Duration>,
    /// The last transaction; later tokens are greater.
    pub(super) last_zxid: Zxid,
    pub(super) access: AccessRights,
    pub(super) exposures: Vec<Exposure>,
}

/// What the servers have space for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RoomLeft {
    All,
    /// Locks, but no other data.
    Locks,
    Nothing,
}

/// What protects the locks that these options create from other clients.
#[derive(Clone, Copy, Debug)]
pub(super) struct AccessRights {
    pub(super) shows_credentials: bool,
    /// Whether every client has all permissions on new znodes.
    pub(super) creates_open: bool,
}

/// A server, by the name in the connection string.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: String,
    /// The answer, or why the server did not give one.
    pub(super) answer: Result<ServerAnswer, String>,
}

#[derive(Debug)]
pub(super) struct ServerAnswer {
    /// `None` if it does not report it.
    pub(super) who: Option<Who>,
    /// The fastest of several.
    pub(super) round_trip: Duration,
    /// Whether it has the data that another server was given; `None` if no data was written.
    pub(super) same_service: Option<bool>,
    pub(super) digest_mismatches: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Who {
    pub(super) software: String,
    /// The version of Apache ZooKeeper; `None` for other software.
    pub(super) version: Option<Version>,
    /// `standalone`, `leader`, `follower` or `observer`.
    pub(super) role: String,
}

impl Who {
    /// A server with this description of its software.
    pub(super) fn new(software: &str, role: String) -> Self {
        // The engine's description starts with the ZooKeeper release that it imitates, whose faults it does not have.
        match software.split_once("-lockkeeper-") {
            Some((_, release)) => {
                Self { software: format!("lockkeeper-{release}"), version: None, role }
            }
            None => Self { software: software.to_owned(), version: Version::read(software), role },
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(u32, u32, u32);

impl Version {
    /// Reads `3.8.0-5a02a05eddb59aee6ac762f7ea82e92a68eb9c0f`.
    pub(super) fn read(text: &str) -> Option<Self> {
        let mut parts = text.split(['.', '-']).map(|part| part.parse().ok());
        Some(Self(parts.next()??, parts.next()??, parts.next()??))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// The first version whose servers neither lose nor repeat transactions when they rejoin under load.
const REJOINS_WELL: Version = Version(3, 9, 4);

/// The oldest supported version.
const OLDEST: Version = Version(3, 5, 0);

/// A larger difference between clocks is reported. Leases do not depend on clocks.
const MUCH_SKEW: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// Locks can be lost, or are not safe.
    Fault,
    /// Worth knowing.
    Note,
}

/// One statement about the service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) level: Level,
    pub(super) text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Fault => "fault",
            Level::Note => "note",
        };
        write!(f, "{level}: {}", self.text)
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match &self.answer {
            Err(_) => write!(f, "{name}: no answer"),
            Ok(answer) => {
                let trip = milliseconds(answer.round_trip);
                write!(f, "{name}: answers in {trip}")?;
                match &answer.who {
                    Some(who) => write!(f, ", {}, {}", product(who), printable(&who.role)),
                    None => f.write_str(", does not report its version"),
                }
            }
        }
    }
}

/// The consequences for holders of locks.
pub(super) fn promise(timing: Timing) -> String {
    format!(
        "session timeout {}: leases of {}; locks survive an outage shorter than {}",
        seconds(timing.timeout()),
        seconds(timing.lease()),
        seconds(timing.outage()),
    )
}

/// The lower bound of future tokens, for a move to other servers.
pub(super) fn tokens(service: &Service) -> String {
    let last = service.last_zxid;
    format!("tokens from now on are above {} (zxid {last}, epoch {})", last.0, last.epoch())
}

/// All findings, the worst first.
pub(super) fn findings(service: &Service) -> Vec<Finding> {
    let mut found = Vec::new();
    of_names(service, &mut found);
    for server in &service.servers {
        of_server(server, service.timing, &mut found);
    }
    of_versions(service, &mut found);
    of_leases(service, &mut found);
    of_room(service.room, &mut found);
    of_commits(service, &mut found);
    of_access(service, &mut found);
    found.sort_by_key(|finding| finding.level != Level::Fault);
    found
}

fn fault(found: &mut Vec<Finding>, text: String) {
    found.push(Finding { level: Level::Fault, text });
}

fn note(found: &mut Vec<Finding>, text: String) {
    found.push(Finding { level: Level::Note, text });
}

fn of_names(service: &Service, found: &mut Vec<Finding>) {
    if service.is_unnamed {
        let text = "no servers are configured, so an engine on this machine keeps the locks, which exclude no \
                   other machine: set connect in /etc/lockkeeper/config.toml for all commands, or put \
                   require-servers = true there";
        note(found, text.to_owned());
    }
}

fn of_server(server: &Server, timing: Timing, found: &mut Vec<Finding>) {
    let name = &server.name;
    let answer = match &server.answer {
        Ok(answer) => answer,
        Err(why) => return fault(found, format!("{name} does not answer: {}", printable(why))),
    };
    if answer.same_service == Some(false) {
        let text = "does not have data that another server was given: clients of this server \
                   contend for other locks; name the servers of one ensemble";
        fault(found, format!("{name} {text}"));
    }

    let (quickest, allowed) = (answer.round_trip, timing.slowest_answer());
    if quickest > allowed {
        let text = "locks stay held if no answer takes more than";
        let advice = "use a longer session timeout, or omit this server";
        let (quickest, allowed) = (milliseconds(quickest), milliseconds(allowed));
        fault(found, format!("{name} takes {quickest} to answer; {text} {allowed}: {advice}"));
    }

    match answer.digest_mismatches {
        Some(times @ 1..) => {
            let text = "other data than its leader (zk_digest_mismatches_count); stop it, delete \
                       its data, and let it copy that of the others";
            fault(found, format!("{name} had {times} times {text}"));
        }
        None if is_member(answer) => {
            let text = "does not report whether it had other data than its leader; allow \
                       mntr (4lw.commands.whitelist)";
            note(found, format!("{name} {text}"));
        }
        _ => {}
    }
}

fn of_versions(service: &Service, found: &mut Vec<Finding>) {
    let known = service.answers().filter_map(|(name, answer)| Some((name, answer.who.as_ref()?)));
    for (name, who) in known {
        let Some(version) = who.version else { continue };
        if version < OLDEST {
            fault(
                found,
                format!("{name} is ZooKeeper {version}; {OLDEST} is the oldest supported"),
            );
        } else if who.role != "standalone" && version < REJOINS_WELL {
            fault(
                found,
                format!(
                    "{name} is ZooKeeper {version}, which can lose transactions and apply them twice \
                     when servers rejoin under load (ZOOKEEPER-4394, ZOOKEEPER-4712, \
                     ZOOKEEPER-4925); use {REJOINS_WELL} or newer"
                ),
            );
        }
    }

    let in_ensemble = service.answers().any(|(_, answer)| is_member(answer));
    if in_ensemble && service.servers.len() == 1 {
        let text = "only one server of an ensemble is named: when it is down, no lock can be acquired or kept; \
                   name the others as well";
        note(found, text.to_owned());
    }
}

fn is_member(answer: &ServerAnswer) -> bool {
    answer.who.as_ref().is_some_and(|who| who.role != "standalone")
}

fn of_leases(service: &Service, found: &mut Vec<Finding>) {
    let several = service.servers.len() > 1 || service.answers().any(|(_, a)| is_member(a));
    if service.mode == LeaseMode::Direct {
        if several {
            let text = "--lease direct with several servers: a server that is cut off from the others keeps \
                       answering, so a lock may have two holders; use --lease quorum";
            fault(found, text.to_owned());
        }
        return;
    }

    // Servers grant at least two ticks, unless minSessionTimeout is set.
    let Some(tick) = service.shortest.map(|shortest| shortest / 2) else { return };
    let told = service.told_tick;
    if tick > told {
        fault(
            found,
            format!(
                "the shortest session that the servers grant is {}, two ticks of {}, but \
                 --server-tick is {}: leases are too long by the difference; use --server-tick {}, or ignore this if \
                 minSessionTimeout is set and tickTime is as given",
                seconds(tick * 2),
                seconds(tick),
                seconds(told),
                seconds(tick).replace(' ', ""),
            ),
        );
    } else if tick < told {
        let (shorter, told) = (seconds(tick), seconds(told));
        let text = format!(
            "the servers' tick is {shorter} according to the shortest session that they grant, but \
             --server-tick is {told}: with the right value locks survive longer outages"
        );
        note(found, text);
    }
}

fn of_room(room: RoomLeft, found: &mut Vec<Finding>) {
    let text = match room {
        RoomLeft::All => return,
        RoomLeft::Locks => {
            "the servers reject data (quota exceeded), and will reject locks when the reserve is used up"
        }
        RoomLeft::Nothing => "the servers reject locks (quota exceeded)",
    };
    let advice = "delete znodes that are not needed, free disk space, or check serve --data-budget \
                 and --disk-reserve";
    fault(found, format!("{text}: {advice}"));
}

fn of_commits(service: &Service, found: &mut Vec<Finding>) {
    let commits = match &service.commits {
        Ok(commits) => commits,
        Err(why) => return note(found, format!("commits were not measured: {}", printable(why))),
    };

    let slowest = commits.iter().max().copied().unwrap_or_default();
    let (slow, allowed) = (milliseconds(slowest), service.timing.slowest_answer());
    if slowest > allowed {
        fault(
            found,
            format!(
                "a commit took {slow}; locks stay held if no commit takes more than {}: use a longer \
                 session timeout, or a faster disk for the servers' log",
                milliseconds(allowed),
            ),
        );
    } else {
        let median = milliseconds(median(commits));
        note(found, format!("a commit takes {median}, the slowest of {} {slow}", commits.len()));
    }

    if let Some(skew) = service.skew.filter(|skew| *skew > MUCH_SKEW) {
        let text = "displayed times are off by that; leases are not affected";
        note(found, format!("the servers' clock differs from ours by {}: {text}", seconds(skew)));
    }
}

fn of_access(service: &Service, found: &mut Vec<Finding>) {
    // The permissions of a Unix socket determine its users.
    if service.servers.iter().all(|server| server.name.starts_with("unix:")) {
        return;
    }

    if service.access.creates_open {
        let why = match service.access.shows_credentials {
            true => "with --acl open, the credentials do not protect anything",
            false => "no credentials are configured (--digest-file)",
        };
        let text = "anyone who can connect to the servers can release or steal these locks";
        return note(found, format!("{why}: {text}"));
    }

    for exposure in &service.exposures {
        let text = "credentials do not protect the lock, because of";
        fault(found, format!("{text} {exposure}; change the access control list of that znode"));
    }
}

impl Server {
    fn answered(&self) -> Option<(&str, &ServerAnswer)> {
        Some((&self.name, self.answer.as_ref().ok()?))
    }
}

impl Service {
    fn answers(&self) -> impl Iterator<Item = (&str, &ServerAnswer)> {
        self.servers.iter().filter_map(Server::answered)
    }
}

fn product(who: &Who) -> String {
    match who.version {
        Some(version) => format!("ZooKeeper {version}"),
        None => printable(&who.software),
    }
}

fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1_000.0)
}

fn seconds(time: Duration) -> String {
    let text = format!("{:.1}", time.as_secs_f64());
    format!("{} s", text.strip_suffix(".0").unwrap_or(&text))
}

#[cfg(test)]
mod tests {
    use lockkeeper::{Permissions, ZnodePath};

    use super::*;

    fn member(version: &str, role: &str) -> ServerAnswer {
        let version = Version::read(version);
        let who = Who { software: "it".to_owned(), version, role: role.to_owned() };
        ServerAnswer {
            who: Some(who),
            round_trip: Duration::from_micros(300),
            same_service: Some(true),
            digest_mismatches: Some(0),
        }
    }

    /// Three servers without faults.
    fn healthy() -> Service {
        let server = |name: &str, role| Server {
            name: format!("{name}:2181"),
            answer: Ok(member("3.9.4-abc", role)),
        };
        let tick = Duration::from_secs(2);
        Service {
            is_unnamed: false,
            servers: vec![server("a", "leader"), server("b", "follower"), server("c", "follower")],
            timing: Timing::new(LeaseMode::Quorum, Duration::from_secs(15), tick),
            mode: LeaseMode::Quorum,
            told_tick: tick,
            shortest: Some(tick * 2),
            room: RoomLeft::All,
            commits: Ok(vec![Duration::from_millis(3); 10]),
            skew: Some(Duration::ZERO),
            last_zxid: Zxid(5 << 32),
            access: AccessRights { shows_credentials: true, creates_open: false },
            exposures: Vec::new(),
        }
    }

    fn faults(service: &Service) -> Vec<String> {
        let faults = findings(service).into_iter().filter(|found| found.level == Level::Fault);
        faults.map(|found| found.text).collect()
    }

    fn answer(service: &mut Service) -> &mut ServerAnswer {
        service.servers[1].answer.as_mut().unwrap()
    }

    /// Changes a healthy service, and expects one fault with this text.
    #[track_caller]
    fn finds(part: &str, change: impl FnOnce(&mut Service)) {
        let mut service = healthy();
        change(&mut service);
        let found = faults(&service);
        assert!(found.len() == 1 && found[0].contains(part), "{part:?}: {found:?}");
    }

    #[test]
    fn a_healthy_service_has_no_fault() {
        assert_eq!(faults(&healthy()), [""; 0]);
    }

    #[test]
    fn unset_servers_are_reported() {
        let service = Service { is_unnamed: true, ..healthy() };
        let told = |service| {
            let found = findings(service);
            assert!(found.iter().all(|finding| finding.level == Level::Note), "{found:?}");
            found.iter().any(|finding| finding.text.contains("no servers are configured"))
        };
        assert!(told(&service) && !told(&healthy()));
    }

    #[test]
    fn each_fault_is_found() {
        finds("b:2181 does not answer: refused", |service| {
            service.servers[1].answer = Err("refused".to_owned());
        });
        finds("other locks", |service| answer(service).same_service = Some(false));
        finds("b:2181 takes 2500.0 ms to answer", |service| {
            answer(service).round_trip = Duration::from_millis(2_500);
        });
        finds("had 2 times", |service| answer(service).digest_mismatches = Some(2));
        finds("reject data", |service| service.room = RoomLeft::Locks);
        finds("reject locks", |service| service.room = RoomLeft::Nothing);
        finds("oldest supported", |service| *answer(service) = member("3.4.14-x", "follower"));
        finds("ZOOKEEPER-4394", |service| *answer(service) = member("3.8.0-x", "follower"));
        finds("--lease quorum", |service| service.mode = LeaseMode::Direct);
        finds("--server-tick 3s", |service| service.shortest = Some(Duration::from_secs(6)));
        finds("a commit took 2500.0 ms", |service| {
            service.commits.as_mut().unwrap().push(Duration::from_millis(2_500));
        });
        finds("/locks: everyone may", |service| {
            let node = ZnodePath::new("/locks").unwrap();
            service.exposures.push(Exposure { node, permissions: Permissions::DELETE });
        });
    }

    #[test]
    fn what_does_no_harm_is_a_note() {
        let mut service = healthy();
        service.access = AccessRights { shows_credentials: false, creates_open: true };
        service.skew = Some(Duration::from_secs(5));
        service.shortest = Some(Duration::from_secs(2));
        answer(&mut service).digest_mismatches = None;
        service.servers.swap(0, 1);
        service.servers.truncate(1);
        assert_eq!(faults(&service), [""; 0]);
        let notes = findings(&service);
        for part in [
            "does not report whether",
            "no credentials",
            "differs from ours by 5 s",
            "tick is 1 s",
            "one server",
        ] {
            assert!(notes.iter().any(|note| note.text.contains(part)), "{part:?}: {notes:?}");
        }
    }

    #[test]
    fn useless_credentials_differ_from_none() {
        let mut service = healthy();
        service.access = AccessRights { shows_credentials: true, creates_open: true };
        let notes: Vec<_> = findings(&service).into_iter().map(|note| note.text).collect();
        assert!(notes.iter().any(|note| note.contains("--acl open")), "{notes:?}");
        assert!(!notes.iter().any(|note| note.contains("no credentials")), "{notes:?}");
        service.access = AccessRights { shows_credentials: false, creates_open: false };
        let notes = findings(&service);
        assert!(!notes.iter().any(|note| note.text.contains("credentials")), "{notes:?}");
    }

    #[test]
    fn a_standalone_server_may_be_old_and_asked_directly() {
        let mut service = healthy();
        service.servers.truncate(1);
        service.servers[0].answer = Ok(member("3.8.0-x", "standalone"));
        service.mode = LeaseMode::Direct;
        assert_eq!(faults(&service), [""; 0]);
    }

    /// K2: the engine's description names a ZooKeeper release so that clients find one, but it is not ZooKeeper.
    #[test]
    fn the_engine_is_not_taken_for_zookeeper() {
        for (name, software) in [
            ("3.9.4-lockkeeper-0.1.0", "lockkeeper-0.1.0"),
            ("3.4.0-lockkeeper-0.2.0-rc.1", "lockkeeper-0.2.0-rc.1"),
            ("lockkeeper-0.1.0", "lockkeeper-0.1.0"),
        ] {
            let who = Who::new(name, "standalone".to_owned());
            assert_eq!((who.version, product(&who).as_str()), (None, software), "{name}");
        }
        let who = Who::new("3.8.0-5a02a05", "leader".to_owned());
        assert_eq!(
            (who.version, product(&who).as_str()),
            (Some(Version(3, 8, 0)), "ZooKeeper 3.8.0")
        );
    }

    #[test]
    fn versions_are_read() {
        assert_eq!(Version::read("3.8.0-5a02a05eddb59aee6ac762f7ea"), Some(Version(3, 8, 0)));
        assert_eq!(Version::read("3.10.1"), Some(Version(3, 10, 1)));
        assert_eq!(Version::read("lockkeeper-0.1.0"), None);
        assert_eq!(Version::read("3.8.0-${mvngit.commit.id}"), Some(Version(3, 8, 0)));
    }
}
