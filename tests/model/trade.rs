//! One node for another at the same number: upgrades and downgrades.
//!
//! The steps are those of `lockkeeper`'s `locks/rw_lock/upgrade.rs` and of `Entrance::replace`.

use bytes::Bytes;
use lockkeeper::Kind;
use lockkeeper::order::{Line, Upgrade};
use lockkeeper_session::{Instant, RequestError};
use lockkeeper_wire::{
    Acl, CheckRequest, CreateMode, CreateRequest, DeleteRequest, ErrorCode, Op, OpResult,
    PathWatchRequest, Request, Response, SetDataRequest,
};

use crate::LOCK;
use crate::client::{Ask, Client, Own, Proof, Step, tries_again};

/// How long the number at the end of a name is.
const DIGITS: usize = 10;

/// What is known of the lock's own node.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Parent {
    Unknown,
    Version(i32),
    /// The answer was lost.
    Lost,
    /// There is none to be had.
    Hopeless,
}

impl From<Result<Response, RequestError>> for Parent {
    fn from(result: Result<Response, RequestError>) -> Self {
        match result {
            Ok(Response::Data { stat, .. }) => Self::Version(stat.version),
            Err(error) if tries_again(&error) => Self::Lost,
            _ => Self::Hopeless,
        }
    }
}

/// A transaction on its way.
#[derive(Clone, Debug)]
pub(crate) struct Trade {
    /// The new node.
    name: String,
    /// What an upgrade needs and a downgrade does not.
    way: Option<Way>,
    /// What came of it, until it is known whether the node is there.
    outcome: Option<Outcome>,
}

/// The way to be alone.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    /// The first writer in line.
    first: String,
    barrier: Own,
    /// Of the lock's own node.
    version: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It was done, or the answer was lost.
    Unsure,
    Refused,
    Hopeless,
}

impl Trade {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn barrier(&self) -> Option<&Own> {
        self.way.as_ref().map(|way| &way.barrier)
    }
}

impl Client {
    /// `clear_the_way`, with a fresh listing.
    pub(crate) fn advance_upgrade(&mut self, now: Instant, barrier: Own, line: Line) {
        let Some(reader) = self.former.as_ref().map(|former| former.own.name().to_owned()) else {
            return;
        };
        self.step = Step::Listing { own: barrier.clone() };
        if line.places().iter().all(|place| place.name != barrier.name()) {
            return self.abandon(now, "deleted");
        }
        match (line.upgrade(&reader), self.parent) {
            (Upgrade::WaitOn(other), _) => self.outwait(now, barrier, line, vec![other]),
            (Upgrade::Clear(first), Parent::Version(version)) => {
                self.trade(now, Some(Way { first, barrier, version }));
            }
            (Upgrade::Clear(_), Parent::Unknown | Parent::Lost) => self.look_again(now, barrier),
            (Upgrade::Clear(_), Parent::Hopeless) => self.abandon(now, "no server"),
            (Upgrade::Gone, _) => self.abandon(now, "deleted"),
        }
    }

    /// The lock's own node first, and then the queue.
    fn look_again(&mut self, now: Instant, barrier: Own) {
        self.step = Step::Listing { own: barrier };
        self.ask(now, Ask::Parent, crate::client::read(LOCK));
    }

    /// `Entrance::replace`: an upgrade if there is a way, and else a downgrade.
    pub(crate) fn trade(&mut self, now: Instant, way: Option<Way>) {
        let Some(former) = self.former.as_ref().map(|former| former.own.name().to_owned()) else {
            return;
        };
        self.attempt += 1;
        let kind = if way.is_some() { Kind::Write } else { Kind::Read };
        let number = &former[former.len() - DIGITS..];
        let name = format!("{}{number}", self.prefix_of(kind));
        self.send(now, Trade { name, way, outcome: None });
    }

    /// The transaction and a look at the new node, in one go (`Contender::take_place`).
    fn send(&mut self, now: Instant, trade: Trade) {
        let Some(former) = self.former.as_ref().map(|former| former.own.path.clone()) else {
            return;
        };
        let path = format!("{LOCK}/{}", trade.name);
        let (data, acl) = (Bytes::new(), Acl::open());
        let flags = CreateMode::Ephemeral.flags();
        let create = CreateRequest { path: path.clone(), data: data.clone().into(), acl, flags };
        let delete = |path| Op::Delete(DeleteRequest { path, version: -1 });
        let mut steps = vec![Op::Create(create), delete(former)];
        if let Some(Way { first, barrier, version }) = &trade.way {
            let first = format!("{LOCK}/{first}");
            steps.push(Op::Check(CheckRequest { path: first, version: -1 }));
            steps.push(delete(barrier.path.clone()));
            let (path, version) = (LOCK.to_owned(), *version);
            steps.push(Op::SetData(SetDataRequest { path, data: data.into(), version }));
        }
        self.step = Step::Trading(trade);
        self.ask(now, Ask::Trade, Request::Multi(steps));
        let look = PathWatchRequest { path, watch: false };
        self.ask(now, Ask::Made, Request::Exists(look));
    }

    pub(crate) fn traded(
        &mut self,
        now: Instant,
        mut trade: Trade,
        ask: Ask,
        result: Result<Response, RequestError>,
    ) {
        if ask == Ask::Trade {
            trade.outcome = Some(outcome(result));
            self.step = Step::Trading(trade);
            return;
        }
        let (path, barrier) = (format!("{LOCK}/{}", trade.name), trade.barrier().cloned());
        match (result, trade.outcome, barrier) {
            (Ok(Response::Stat(stat)), _, _) => {
                let Some(former) = self.former.take() else { return };
                self.session.unhold(former.hold);
                let upgraded = trade.way.is_some();
                let token = if upgraded { stat.czxid.0 } else { former.own.token };
                self.kind = if upgraded { Kind::Write } else { Kind::Read };
                let own = Own { path, session: stat.ephemeral_owner, token };
                self.grant(now, own, Proof::Old, true);
            }
            (_, Some(Outcome::Unsure), _) => {
                trade.outcome = None;
                self.send(now, trade);
            }
            // The first writer has left, and readers behind it hold now.
            (_, Some(Outcome::Refused), Some(barrier)) => {
                self.clean_up_child(now, trade.name);
                self.look_again(now, barrier);
            }
            _ => self.abandon(now, "not replaced"),
        }
    }
}

fn outcome(result: Result<Response, RequestError>) -> Outcome {
    let exists = OpResult::Error(Some(ErrorCode::NodeExists));
    match result {
        Ok(Response::Multi(results)) if results.first() == Some(&exists) => Outcome::Unsure,
        Ok(Response::Multi(results)) => {
            let failed = results.iter().any(|result| matches!(result, OpResult::Error(_)));
            if failed { Outcome::Refused } else { Outcome::Unsure }
        }
        Err(error) if tries_again(&error) => Outcome::Unsure,
        _ => Outcome::Hopeless,
    }
}
