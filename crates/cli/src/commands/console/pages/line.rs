//! The line of one lock as a picture: a rail with a mark for each contender, and an arc to each that it waits for.

use lockkeeper::inspect::LockQueue;

/// The height of a row of the list at the right of the rail.
pub(super) const ROW: usize = 56;

/// Where the marks are.
const RAIL: usize = 44;

/// How far arcs reach to the left.
const FIRST_ARC: usize = 14;
const LONGEST_ARC: usize = 40;

/// The rail of the first contenders of a queue.
#[derive(Debug)]
pub(super) struct Rail {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) marks: Vec<Mark>,
    pub(super) arcs: Vec<Arc>,
}

#[derive(Debug)]
pub(super) struct Mark {
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) holds: bool,
    pub(super) is_stuck: bool,
}

#[derive(Debug)]
pub(super) struct Arc {
    pub(super) path: String,
    pub(super) is_stuck: bool,
}

impl Rail {
    /// Of the first `rows` contenders.
    pub(super) fn of(queue: &LockQueue, rows: usize, is_stuck: impl Fn(usize) -> bool) -> Self {
        let middle = |row: usize| row * ROW + ROW / 2;
        let entries = queue.entries.iter().take(rows).enumerate();
        let marks = entries.map(|(row, entry)| Mark {
            x: RAIL,
            y: middle(row),
            holds: entry.holds,
            is_stuck: is_stuck(row),
        });
        let marks: Vec<_> = marks.collect();

        let mut arcs = Vec::new();
        for row in 0..marks.len() {
            for ahead in next_ahead(queue, row) {
                let (from, to) = (middle(row) - 7, middle(ahead) + 8);
                let reach = match row - ahead {
                    1 => 0,
                    rows => (FIRST_ARC + 4 * rows).min(LONGEST_ARC),
                };
                let left = RAIL - reach;
                let path = format!("M{RAIL} {from}C{left} {from} {left} {to} {RAIL} {to}");
                arcs.push(Arc { path, is_stuck: is_stuck(row) });
            }
        }
        Self { width: RAIL + 16, height: marks.len() * ROW, marks, arcs }
    }
}

/// Those that a contender waits for, but for those that another one of them waits for: a line is drawn as a line.
fn next_ahead(queue: &LockQueue, row: usize) -> Vec<usize> {
    let ahead: Vec<usize> = queue.blockers(row).collect();
    let mut next: Vec<usize> = Vec::new();
    for blocker in ahead.iter().rev() {
        let is_behind = |nearer: &usize| queue.blockers(*nearer).any(|of| of == *blocker);
        if !next.iter().any(is_behind) {
            next.push(*blocker);
        }
    }
    next
}
