//! Where a lock is held, and what happens to its servers.
//!
//! A new form is one more variant here, and what it does in `stand.rs`.

/// What keeps the locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// `lockkeeper serve` on another host, with a quorum lease.
    Engine,
    /// The machine-local engine behind its Unix socket, with a direct lease.
    Local,
    /// Three Apache ZooKeeper servers on other hosts, with a quorum lease.
    Ensemble,
}

impl Place {
    pub(crate) const ALL: [Self; 3] = [Self::Engine, Self::Local, Self::Ensemble];

    /// As on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Local => "local",
            Self::Ensemble => "ensemble",
        }
    }

    /// How many hosts its servers need; the first ones of the network.
    pub(crate) fn servers(self) -> usize {
        match self {
            Self::Engine => 1,
            Self::Local => 0,
            Self::Ensemble => 3,
        }
    }

    /// What can happen to it.
    pub(crate) fn forms(self) -> &'static [Form] {
        match self {
            Self::Engine => &[Form::Stopped, Form::Restarted, Form::Link],
            // There is no link, and a holder starts the engine again by itself.
            Self::Local => &[Form::Stopped],
            Self::Ensemble => &[Form::Stopped, Form::Restarted, Form::Link, Form::Leader],
        }
    }
}

/// One kind of outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// All servers are stopped (SIGSTOP), and go on later.
    Stopped,
    /// All servers are killed, and started again later.
    Restarted,
    /// Packets between the holders and all servers are lost, both ways.
    Link,
    /// The leader is killed. The others elect another one.
    Leader,
}

impl Form {
    pub(crate) const ALL: [Self; 4] = [Self::Stopped, Self::Restarted, Self::Link, Self::Leader];

    /// As on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Restarted => "restarted",
            Self::Link => "link",
            Self::Leader => "leader",
        }
    }

    /// As in a table.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Stopped => "server stopped",
            Self::Restarted => "server killed, started again",
            Self::Link => "link cut",
            Self::Leader => "leader killed",
        }
    }

    /// Whether the length of such an outage can be chosen. An election takes as long as it takes,
    /// and so does the start of a Java program.
    pub(crate) fn has_chosen_length(self, place: Place) -> bool {
        match self {
            Self::Stopped | Self::Link => true,
            Self::Restarted => place == Place::Engine,
            Self::Leader => false,
        }
    }
}
