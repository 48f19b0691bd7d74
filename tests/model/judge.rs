//! What is promised, and must be true in every state.

use lockkeeper::order::upgrade::Upgrade;
use lockkeeper::order::{Standing, WaitQueue};
use lockkeeper::{Kind, Profile, SessionId};
use lockkeeper_testkit::history::Share;

use crate::histories::Seen;
use crate::items;
use crate::machine::author;
use crate::program::{Belief, GaveUp, Phase, Standing as Stands};
use crate::rounds;
use crate::scenarios::{Bounds, LockKind};
use crate::state::{Broken, Parts, State};

/// Something that must be true in every state.
pub(crate) struct Promise {
    pub(crate) name: Broken,
    /// Whether it is; the last argument: whether nothing can happen any more.
    pub(crate) holds: fn(&Parts, &State, bool) -> bool,
}

/// A new one is one more line here. Others are about one step: see [`step`], [`grant`] and [`leaves`], and those of
/// [`items`].
pub(crate) const PROMISES: &[Promise] = &[
    Promise { name: "mutual exclusion by lease", holds: leases_fit },
    Promise { name: "a holder has its node", holds: holders_have_their_nodes },
    Promise { name: "no wait goes on for a free lock or item", holds: nobody_is_forgotten },
    Promise { name: "every wait ends", holds: all_come_to_an_end },
    Promise { name: "nothing is left behind", holds: nothing_is_left },
    Promise { name: "an item is there until it is done", holds: items::item_is_there },
];

/// Who believes to hold at this moment, each with its share and its node.
fn believers<'a>(
    parts: &'a Parts,
    state: &'a State,
) -> impl Iterator<Item = (usize, Share, &'a Belief)> {
    (0..state.clients.len()).filter_map(|n| {
        let seen = parts.seen(state, n)?;
        let belief = seen.belief.as_ref().filter(|belief| belief.until > seen.now)?;
        let share = match seen.phase {
            Phase::Holding(share) => share,
            // What it gives up for it is over when it asks, and what it gets begins with the grant.
            Phase::Turning(_) => Share::Reader,
            _ => return None,
        };
        Some((n, state.measured(share), belief))
    })
}

fn leases_fit(parts: &Parts, state: &State, _: bool) -> bool {
    let shares: Vec<_> = believers(parts, state).map(|(_, share, _)| share).collect();
    Share::fit(&shares)
}

/// The number at the end of a name stays when a node is replaced by another.
fn holders_have_their_nodes(parts: &Parts, state: &State, _: bool) -> bool {
    let nodes = &parts.service.view(state.server).nodes;
    believers(parts, state).all(|(n, _, belief)| {
        let turning = matches!(parts.seen(state, n).map(|s| &s.phase), Some(Phase::Turning(_)));
        belief.nodes.iter().all(|node| {
            let number = &node[node.len().saturating_sub(10)..];
            nodes.iter().any(|(path, owner)| {
                path == node && *owner == belief.session
                    || turning && author(name(path)) == Some(n) && path.ends_with(number)
            })
        })
    })
}

/// Whether every client that should hold the lock by now holds it, when no message is in flight.
fn nobody_is_forgotten(parts: &Parts, state: &State, _: bool) -> bool {
    let clients = || (0..state.clients.len()).filter_map(|n| Some((n, parts.seen(state, n)?)));
    if clients().any(|(n, seen)| seen.timer || !state.clients[n].is_quiet()) {
        return true;
    }
    if parts.bounds.lock == LockKind::Queue {
        return !items::is_forgotten(parts, state);
    }
    if parts.bounds.lock == LockKind::Rounds {
        return !rounds::is_forgotten(parts, state);
    }
    let Some(mut line) = parts.line(state) else { return true };
    line.set_permits(state.permits);
    let own = |n| line.places().iter().rev().find(move |place| author(&place.name) == Some(n));
    clients().all(|(n, seen)| match seen.phase {
        Phase::Asking(_) => {
            let place = own(n);
            place.is_none_or(|place| line.standing(&place.name) != Standing::Held)
        }
        Phase::Turning(_) => seen.belief.as_ref().is_none_or(|reader| {
            reader.until <= seen.now
                || matches!(line.upgrade(name(&reader.nodes[0])), Upgrade::WaitOn(_))
        }),
        _ => true,
    })
}

/// All have gone but consumers that wait for nothing, and parties that wait for others.
fn all_come_to_an_end(parts: &Parts, state: &State, is_over: bool) -> bool {
    let is_empty = parts.service.view(state.server).entries.is_empty();
    let may_stay = |seen: &Seen| {
        let is_alone = match parts.bounds.lock {
            LockKind::Queue => is_empty,
            LockKind::Rounds => !rounds::is_forgotten(parts, state),
            _ => false,
        };
        is_alone && matches!(seen.phase, Phase::Asking(_))
    };
    !is_over || (0..state.clients.len()).filter_map(|n| parts.seen(state, n)).all(may_stay)
}

/// Where the data was put back, sessions that had ended are there again, and end in their time.
fn nothing_is_left(parts: &Parts, state: &State, is_over: bool) -> bool {
    let view = parts.service.view(state.server);
    let is_left = |(node, owner): &(String, SessionId)| {
        items::is_claim(node) || !view.sessions.iter().any(|(_, session)| session == owner)
    };
    !is_over || state.used.restores > 0 || !view.nodes.iter().any(is_left)
}

/// A client has made a step.
///
/// # Errors
///
/// It has panicked, or gives up for a reason that the bounds do not allow.
pub(crate) fn step(bounds: &Bounds, seen: &Seen) -> Result<(), Broken> {
    if seen.panicked {
        return Err("nothing panics");
    }
    let may = match &seen.phase {
        Phase::GaveUp(GaveUp::TooMany) => bounds.changes > 0,
        Phase::GaveUp(GaveUp::Failed(_) | GaveUp::Lost) => bounds.ticks > 0,
        _ => true,
    };
    if may { Ok(()) } else { Err("no wait is given up without a reason") }
}

/// How a hold went on with this step.
///
/// # Errors
///
/// A lost lock is held again, a lock that is held again had another holder in between, or work was done
/// without the lock.
pub(crate) fn goes_on(
    parts: &Parts,
    state: &State,
    before: &Seen,
    seen: &Seen,
) -> Result<(), Broken> {
    // What it gives up for an upgrade is its own until it asks.
    let is_held =
        matches!(seen.standing, Some((_, Stands::Held))) || matches!(seen.phase, Phase::Turning(_));
    if seen.is_astray {
        return Err("no work is done without the lock");
    }
    if seen.works && !is_held {
        return Err("nothing is sent without the lock");
    }
    if seen.granted.is_some() && !is_held {
        return Err("nothing is granted in jeopardy");
    }

    let (Some((token, was)), Some((now_token, is))) = (before.standing, seen.standing) else {
        return Ok(());
    };
    match (was, is) {
        _ if token != now_token => Ok(()),
        (Stands::Lost, Stands::Held | Stands::Jeopardy) => Err("what is lost stays lost"),
        (Stands::Jeopardy, Stands::Held) => again(parts, state, seen, token),
        _ => Ok(()),
    }
}

/// A client holds again what was in jeopardy.
fn again(parts: &Parts, state: &State, seen: &Seen, token: u128) -> Result<(), Broken> {
    let Phase::Holding(share) = seen.phase else { return Ok(()) };
    let share = state.measured(share);
    let is_excluded = |(other, highest): (&Share, &u128)| {
        *highest > token && !Share::fit(&[share, state.measured(*other)])
    };
    if state.tokens.iter().any(is_excluded) {
        return Err("nobody else had what is held again");
    }
    let Some(belief) = &seen.belief else { return Err("a holder has its node") };
    let nodes = &parts.service.view(state.server).nodes;
    let is_there =
        |node: &String| nodes.iter().any(|(path, owner)| path == node && *owner == belief.session);
    match belief.nodes.iter().all(is_there) {
        true => Ok(()),
        false => Err("a holder has its node"),
    }
}

/// A client's program has ended, and its work is complete.
///
/// # Errors
///
/// Something of its present session is there.
pub(crate) fn leaves(parts: &Parts, state: &State, n: usize) -> Result<(), Broken> {
    let view = parts.service.view(state.server);
    let connection = state.connection(n);
    let mut sessions = view.sessions.iter().filter(|(of, _)| *of == connection);
    let Some((_, session)) = sessions.next() else { return Ok(()) };
    match view.nodes.iter().any(|(_, owner)| owner == session) {
        true => Err("nothing is left behind"),
        false => Ok(()),
    }
}

/// A client was just granted the lock.
///
/// # Errors
///
/// Its token is not larger than those of earlier grants that exclude it, or a contender ahead excludes it.
pub(crate) fn grant(
    parts: &Parts,
    state: &mut State,
    n: usize,
    share: Share,
    token: u128,
) -> Result<(), Broken> {
    let share = state.measured(share);
    let not_above = |(&other, &highest): (&Share, &u128)| {
        // A reader that was a writer has the writer's token.
        let own = share == Share::Reader && (other, highest) == (Share::Alone, token);
        token <= highest && !own && !Share::fit(&[share, state.measured(other)])
    };
    if state.tokens.iter().any(not_above) {
        return Err("mutual exclusion by token");
    }
    let highest = state.tokens.entry(share).or_default();
    *highest = token.max(*highest);

    // After a restore of the data, contenders that were ahead and had left exist again.
    let line = parts.line(state).filter(|_| state.used.restores == 0);
    let Some(line) = line else { return Ok(()) };
    let node = parts.seen(state, n).and_then(|seen| seen.belief.as_ref());
    let node = node.map(|belief| name(&belief.nodes[0]));
    let own = line.places().iter().position(|place| Some(&*place.name) == node);
    let ahead = &line.places()[..own.unwrap_or_default()];
    let ahead: Vec<_> = ahead.iter().map(|place| state.measured(share_of(place.kind))).collect();
    if share.fits_behind(&ahead) { Ok(()) } else { Err("no contender is overtaken") }
}

impl Parts {
    /// The contenders in order; `None` if the lock is not ordered, or has several orders.
    fn line(&self, state: &State) -> Option<WaitQueue> {
        if !self.bounds.lock.has_one_line() {
            return None;
        }
        let kinds = [Kind::Exclusive, Kind::Upgradeable, Kind::Read, Kind::Write, Kind::Permits(1)];
        let nodes = &self.service.view(state.server).nodes;
        let names = nodes.iter().map(|(path, _)| name(path).to_owned()).collect();
        Some(WaitQueue::read(names, Profile::Curator, &kinds).expect("only contenders"))
    }
}

impl State {
    /// A share, with the number of permits that counts for it: a contender that came before the number grew
    /// may be overtaken by later contenders.
    fn measured(&self, share: Share) -> Share {
        match share {
            Share::Permits { taken, .. } => Share::Permits { taken, of: self.most },
            other => other,
        }
    }
}

fn share_of(kind: Kind) -> Share {
    match kind {
        Kind::Read => Share::Reader,
        Kind::Upgradeable => Share::Upgradeable,
        Kind::Permits(taken) => Share::Permits { taken, of: 0 },
        _ => Share::Alone,
    }
}

/// The last part of a path.
fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
