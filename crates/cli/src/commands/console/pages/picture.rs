//! The graph as a picture: a card for each program that others wait for, a card for each lock that it holds, and lines
//! from left to right to the programs that wait behind it and hold other locks. Programs that only wait are counted on the lock's card.

use std::collections::{HashMap, HashSet};

use lockkeeper::SessionId;
use lockkeeper::graph::ContenderIndex;

use crate::commands::console::model::Model;
use crate::commands::console::text;
use crate::commands::console::words::ContenderName;
use crate::shared::view;

/// How many locks are drawn.
const MOST_LOCKS: usize = 60;

/// How many programs are followed behind one lock.
const MOST_BEHIND: usize = 12;

const WIDTH: usize = 216;
const HEIGHT: usize = 48;
const GAP_X: usize = 64;
const GAP_Y: usize = 20;
const MARGIN: usize = 12;

/// How many characters fit onto a card.
const CARD_TEXT: usize = 27;

/// The picture.
#[derive(Debug)]
pub(super) struct GraphPicture {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) cards: Vec<Card>,
    pub(super) lines: Vec<Edge>,
    /// How many contended locks are not drawn.
    pub(super) omitted: usize,
    /// What is drawn, in words.
    pub(super) description: String,
}

/// A program or a lock.
#[derive(Debug)]
pub(super) struct Card {
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) is_lock: bool,
    pub(super) is_stuck: bool,
    pub(super) is_root: bool,
    pub(super) title: String,
    pub(super) detail: String,
    pub(super) link: Option<String>,
}

/// A line between two cards.
#[derive(Debug)]
pub(super) struct Edge {
    pub(super) path: String,
    pub(super) is_stuck: bool,
}

/// A card of the picture that is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum CardKey {
    Program(SessionId),
    /// The holder of a lock that no session's end frees.
    Nobody(usize),
    Lock(usize),
}

/// A tree of cards, walked from the root blockers on.
struct Drawing<'a> {
    model: &'a Model,
    places: HashMap<CardKey, (usize, usize)>,
    order: Vec<(CardKey, usize)>,
    edges: Vec<(CardKey, CardKey)>,
    /// The edges that are parts of a circle.
    circle: HashSet<(CardKey, CardKey)>,
    roots: HashSet<CardKey>,
    locks: usize,
    next_row: usize,
}

impl GraphPicture {
    /// The root blockers with what is behind them, and the circles.
    pub(super) fn of(model: &Model) -> Self {
        let mut drawing = Drawing {
            model,
            places: HashMap::new(),
            order: Vec::new(),
            edges: Vec::new(),
            circle: HashSet::new(),
            roots: HashSet::new(),
            locks: 0,
            next_row: 0,
        };
        for cycle in &model.cycles {
            for (step, next) in cycle.steps.iter().zip(cycle.steps.iter().cycle().skip(1)) {
                let lock = CardKey::Lock(step.waiter.lock);
                let blocker = drawing.program_of(step.blocker);
                drawing.circle.insert((blocker, lock));
                // The blocker of this step is kept by the waiter of the next one.
                drawing.circle.insert((CardKey::Lock(next.waiter.lock), blocker));
            }
        }
        for cycle in &model.cycles {
            if let Some(step) = cycle.steps.first() {
                let start = drawing.program_of(step.blocker);
                drawing.walk(start, Some(step.blocker.lock), 0);
                // Room for the line that closes the circle.
                drawing.next_row += 1;
            }
        }
        for root in &model.roots {
            if drawing.locks == MOST_LOCKS {
                break;
            }
            let start = drawing.program_of(root.holder);
            drawing.roots.insert(start);
            drawing.walk(start, Some(root.holder.lock), 0);
        }
        drawing.picture()
    }
}

impl Drawing<'_> {
    fn program_of(&self, at: ContenderIndex) -> CardKey {
        match self.model.contender(at).session {
            SessionId::NONE => CardKey::Nobody(at.lock),
            session => CardKey::Program(session),
        }
    }

    /// The contended locks that a program holds, with `first` before all others.
    fn locks_of(&self, node: CardKey, first: Option<usize>) -> Vec<usize> {
        let mut locks = match node {
            CardKey::Program(session) => {
                let held = self
                    .model
                    .session(session)
                    .iter()
                    .filter(|at| self.model.contender(**at).holds);
                let mut locks: Vec<usize> = held.map(|at| at.lock).collect();
                locks.retain(|lock| self.model.is_contended(*lock));
                locks
            }
            CardKey::Nobody(lock) => vec![lock],
            CardKey::Lock(_) => Vec::new(),
        };
        locks.sort_by_key(|lock| (Some(*lock) != first, *lock));
        locks.dedup();
        locks
    }

    /// The programs that wait for a lock and hold others that are waited for.
    fn behind(&self, lock: usize) -> Vec<CardKey> {
        let mut behind = Vec::new();
        for (entry, found) in self.model.queues[lock].entries.iter().enumerate() {
            if found.holds || behind.len() == MOST_BEHIND {
                continue;
            }
            for session in self.model.kept_by(ContenderIndex { lock, entry }) {
                let node = CardKey::Program(session);
                let mut held = self.locks_of(node, None);
                held.retain(|held| *held != lock);
                if !held.is_empty() && !behind.contains(&node) {
                    behind.push(node);
                }
            }
        }
        behind
    }

    /// Gives a card and all behind it their places. Returns the row of the card.
    fn walk(&mut self, node: CardKey, first: Option<usize>, column: usize) -> usize {
        if let Some((_, row)) = self.places.get(&node) {
            return *row;
        }
        // Where it is drawn is known when all behind it are; that it is drawn, before.
        self.places.insert(node, (column, self.next_row));
        self.order.push((node, column));
        let next: Vec<CardKey> = match node {
            CardKey::Lock(lock) => self.behind(lock),
            _ => self.locks_of(node, first).into_iter().map(CardKey::Lock).collect(),
        };
        let mut rows = Vec::new();
        for other in next {
            let is_new = !self.places.contains_key(&other);
            if is_new && matches!(other, CardKey::Lock(_)) {
                if self.locks == MOST_LOCKS {
                    continue;
                }
                self.locks += 1;
            }
            self.edges.push((node, other));
            if is_new {
                rows.push(self.walk(other, None, column + 1));
            }
        }
        let row = match (rows.first(), rows.last()) {
            (Some(first), Some(last)) => (first + last) / 2,
            _ => {
                self.next_row += 2;
                self.next_row - 2
            }
        };
        self.places.insert(node, (column, row));
        row
    }

    fn picture(self) -> GraphPicture {
        let columns = self.order.iter().map(|(_, column)| column + 1).max().unwrap_or_default();
        let has_back = self.edges.iter().any(|(from, to)| self.places[to].0 <= self.places[from].0);
        let below = if has_back { 40 } else { 0 };
        let cards: Vec<Card> = self.order.iter().map(|(node, _)| self.card(*node)).collect();
        let bottom = cards.iter().map(|card| card.y + HEIGHT).max().unwrap_or_default();
        let lines = self.edges.iter().map(|(from, to)| self.line(*from, *to)).collect();
        let contended =
            (0..self.model.queues.len()).filter(|lock| self.model.is_contended(*lock)).count();
        let programs =
            self.order.iter().filter(|(node, _)| !matches!(node, CardKey::Lock(_))).count();
        GraphPicture {
            width: columns * (WIDTH + GAP_X) + 2 * MARGIN - GAP_X.min(columns * GAP_X),
            height: bottom + below + MARGIN,
            description: format!(
                "{} that block others through {}. The table below has the same in words.",
                text::count(programs, "program"),
                text::count(self.locks, "lock")
            ),
            omitted: contended.saturating_sub(self.locks),
            cards,
            lines,
        }
    }

    fn corner(&self, node: CardKey) -> (usize, usize) {
        let (column, row) = self.places[&node];
        (MARGIN + column * (WIDTH + GAP_X), MARGIN + row * (HEIGHT + GAP_Y) / 2)
    }

    fn card(&self, node: CardKey) -> Card {
        let (x, y) = self.corner(node);
        let is_stuck = self.circle.iter().any(|(from, to)| *from == node || *to == node);
        let (title, detail, link) = match node {
            CardKey::Lock(lock) => {
                let queue = &self.model.queues[lock];
                let waits = queue.waiters().count();
                let oldest = queue.waiters().map(|entry| entry.since).min();
                let oldest =
                    oldest.map(|since| view::duration(since.elapsed().unwrap_or_default()));
                let detail = format!(
                    "{} waiting, longest {}",
                    text::number(waits),
                    oldest.unwrap_or_default()
                );
                let link = (queue.path.as_str().len() <= text::LONGEST_LINK)
                    .then(|| format!("/lock?path={}", text::query(queue.path.as_str())));
                (ending(queue.path.as_str()), detail, link)
            }
            CardKey::Program(session) => {
                let own = self.model.session(session);
                let known = own.iter().find(|at| self.model.contender(**at).owner.is_some());
                let who =
                    known.or(own.first()).map(|at| ContenderName::of(self.model.contender(*at)));
                let (name, place) = who.map(|who| (who.name, who.place)).unwrap_or_default();
                let link = format!("/programs?q={}", text::query(&session.to_string()));
                (text::visible(&name, CARD_TEXT), text::visible(&place, CARD_TEXT + 4), Some(link))
            }
            CardKey::Nobody(_) => ("a node that is not ephemeral".to_owned(), String::new(), None),
        };
        let (is_lock, is_root) = (matches!(node, CardKey::Lock(_)), self.roots.contains(&node));
        Card { x, y, is_lock, is_stuck, is_root, title, detail, link }
    }

    fn line(&self, from: CardKey, to: CardKey) -> Edge {
        let (start, end) = (self.corner(from), self.corner(to));
        let (x0, y0) = (start.0 + WIDTH, start.1 + HEIGHT / 2);
        let (x1, y1) = (end.0, end.1 + HEIGHT / 2);
        let is_stuck = self.circle.contains(&(from, to));
        let path = if x1 > x0 {
            let middle = (x0 + x1) / 2;
            format!("M{x0} {y0}C{middle} {y0} {middle} {y1} {x1} {y1}")
        } else {
            // Back to the left, below both cards.
            let low = start.1.max(end.1) + HEIGHT + GAP_Y;
            let (right, to, foot) = (x0 + 30, x1 + WIDTH / 2, end.1 + HEIGHT + 1);
            format!(
                "M{x0} {y0}C{right} {y0} {right} {low} {} {low}L{} {low}Q{to} {low} {to} {foot}",
                x0 - 10,
                to + 24
            )
        };
        Edge { path, is_stuck }
    }
}

/// The end of a path, which tells locks apart, as it fits onto a card.
fn ending(path: &str) -> String {
    let length = path.chars().count();
    if length <= CARD_TEXT {
        return text::visible(path, CARD_TEXT);
    }
    let end: String = path.chars().skip(length - CARD_TEXT + 1).collect();
    format!("…{}", text::visible(&end, CARD_TEXT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::console::model::tests::{FakeTree, circle};

    #[test]
    fn a_circle_is_closed_in_red() {
        let picture = GraphPicture::of(&circle());
        let cards = picture.cards.iter().map(|card| (card.is_lock, card.is_stuck, card.is_root));
        let (program, lock) = ((false, true, false), (true, true, false));
        assert_eq!(cards.collect::<Vec<_>>(), [program, lock, program, lock]);
        assert!(picture.lines.len() == 4 && picture.lines.iter().all(|line| line.is_stuck));
        assert_eq!(picture.omitted, 0);
    }

    #[test]
    fn root_blockers_are_at_the_left() {
        let mut tree = FakeTree::default();
        tree.add("/a", 0, 1, None);
        tree.add("/a", 1, 2, None);
        tree.add("/b", 0, 2, None);
        tree.add("/b", 1, 3, None);
        let picture = GraphPicture::of(&tree.model());
        let columns: Vec<_> =
            picture.cards.iter().map(|card| (card.x > 20, card.is_root)).collect();
        assert_eq!(columns, [(false, true), (true, false), (true, false), (true, false)]);
        assert!(picture.lines.iter().all(|line| !line.is_stuck));
    }

    #[test]
    fn a_picture_is_bounded() {
        let mut tree = FakeTree::default();
        for lock in 0..500 {
            tree.add(&format!("/l{lock:03}"), 0, 2 * lock + 1, None);
            tree.add(&format!("/l{lock:03}"), 1, 2 * lock + 2, None);
        }
        let picture = GraphPicture::of(&tree.model());
        assert_eq!((picture.cards.len(), picture.omitted), (2 * MOST_LOCKS, 500 - MOST_LOCKS));
    }
}
