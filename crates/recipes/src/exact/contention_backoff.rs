//! Backoff for writes to a value that other programs write too. No I/O; the time and random numbers are
//! arguments.
//!
//! Of the writes to one state of a value, one succeeds. Servers log and sync the refused ones as well, and all
//! writers learn the new state at the same time. If all tried again at once, each success would cost as many
//! transactions as there are writers. If only the refused ones waited, the one that succeeds would never meet
//! another, and would win forever. So:
//!
//! - After a first refusal, the write is repeated at once: programs that write rarely seldom collide twice.
//! - After further refusals, it waits for a random part of a window that grows, and then shrinks: a window that
//!   is long enough for a few writers is found fast, and a writer that has lost for long gets ahead of the others.
//! - A writer that has recently met another one has a turn of some writes in a row, and rests after it, so that
//!   the others get in.
//!
//! All times are multiples of the handle's pace, which is about the duration of a write. The reasons are in
//! `docs/decisions/0028`.

use std::time::Duration;

use lockkeeper_client::Instant;

/// The windows of the waits after the second and further refusals in a row; the last one repeats.
/// A wait takes at least half of its window.
const WINDOWS: [u32; 8] = [4, 8, 16, 32, 64, 32, 16, 8];

/// The duration of a turn.
const TURN: u32 = 16;

/// The longest rest.
const MAX_REST: u32 = 32;

/// How long other writers are expected after one was met.
const EXPECTS_OTHERS: u32 = 2_048;

/// The slowest pace, so that no wait is longer than a second.
const MAX_PACE: Duration = Duration::from_millis(16);

/// What a writer knows about its competitors.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ContentionBackoff {
    /// About the duration of a write; zero before the first one.
    pace: Duration,
    /// How often in a row another program was faster.
    losses: usize,
    /// When another program was last faster.
    met: Option<Instant>,
    /// When the current turn began.
    turn: Option<Instant>,
    /// When the current rest ends.
    rest: Option<Instant>,
}

impl ContentionBackoff {
    /// Another program was faster: returns how long to wait before the next try. `random` is in `0..1`.
    pub(super) fn lost(&mut self, took: Duration, now: Instant, random: f64) -> Duration {
        self.learn(took);
        (self.met, self.turn) = (Some(now), None);
        self.losses += 1;
        match self.losses.checked_sub(2) {
            None => Duration::ZERO,
            Some(wait) => {
                let window = self.pace * WINDOWS[wait.min(WINDOWS.len() - 1)];
                window.mul_f64(0.5 + random / 2.0)
            }
        }
    }

    /// A write has succeeded.
    pub(super) fn won(&mut self, took: Duration, now: Instant, random: f64) {
        self.learn(took);
        self.losses = 0;
        if self.met.is_none_or(|met| now - met > self.pace * EXPECTS_OTHERS) {
            (self.met, self.turn) = (None, None);
            return;
        }
        let begun = *self.turn.get_or_insert(now);
        if now - begun >= self.pace * TURN {
            self.turn = None;
            self.rest = Some(now + (self.pace * MAX_REST).mul_f64(random));
        }
    }

    /// A new write begins: returns how long to rest before it.
    pub(super) fn rest(&mut self, now: Instant) -> Duration {
        self.losses = 0;
        self.rest.take().map_or(Duration::ZERO, |end| end - now)
    }

    fn learn(&mut self, took: Duration) {
        let took = took.min(MAX_PACE);
        self.pace = match self.pace {
            Duration::ZERO => took,
            pace => (pace * 7 + took) / 8,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writers that start again as soon as one write has succeeded, and a server that syncs in batches, in simulated
    /// microseconds.
    struct Field {
        random: fastrand::Rng,
        writers: Vec<Writer>,
        /// The number of writes of the value.
        version: u64,
        /// The number of refused tries.
        refused: usize,
    }

    #[derive(Default)]
    struct Writer {
        contention_backoff: ContentionBackoff,
        /// The version that it knows.
        known: u64,
        /// Whether it reads before it tries.
        reads: bool,
        /// When its next message arrives, and when it was sent.
        arrives: u64,
        sent: u64,
        wins: usize,
        /// The time of its last success, and the longest time between two.
        won: u64,
        gap: u64,
    }

    const SYNC: u64 = 250;
    const WAY: u64 = 40;
    const END: u64 = 4_000_000;

    fn instant(micros: u64) -> Instant {
        Instant::from_start(Duration::from_micros(micros))
    }

    fn micros(duration: Duration) -> u64 {
        u64::try_from(duration.as_micros()).unwrap()
    }

    impl Field {
        fn of(count: usize, seed: u64) -> Self {
            let mut random = fastrand::Rng::with_seed(seed);
            let writers = (0..count)
                .map(|_| Writer { arrives: random.u64(..1_000), ..Writer::default() })
                .collect();
            Self { random, writers, version: 0, refused: 0 }
        }

        fn run(mut self) -> Self {
            let mut now = 0;
            while now < END {
                let next = self.writers.iter().map(|writer| writer.arrives).min().unwrap();
                now = now.max(next);
                self.read(now);
                let mut synced: Vec<usize> = (0..self.writers.len()).collect();
                synced.retain(|index| self.writers[*index].arrives <= now);
                if synced.is_empty() {
                    continue;
                }
                synced.sort_by_key(|index| self.writers[*index].arrives);
                now += SYNC;
                // They do not see the writes in flight.
                self.read(now);

                // The first one that knows the version succeeds; the others learn of its write.
                let winner = synced.iter().position(|it| self.writers[*it].known == self.version);
                self.version += u64::from(winner.is_some());
                for (place, index) in synced.into_iter().enumerate() {
                    self.answer(index, Some(place) == winner, now);
                }
            }
            self
        }

        /// Answers the reads that have arrived; a try follows each.
        fn read(&mut self, now: u64) {
            let (random, version) = (&mut self.random, self.version);
            for writer in self.writers.iter_mut().filter(|writer| writer.reads) {
                if writer.arrives <= now {
                    (writer.known, writer.reads) = (version, false);
                    writer.sent = writer.arrives + random.u64(..WAY);
                    writer.arrives = writer.sent + WAY + random.u64(..WAY);
                }
            }
        }

        /// Schedules the next try of a writer as the backoff decides, with the state from the answer or from a
        /// read after the wait.
        fn answer(&mut self, index: usize, won: bool, now: u64) {
            let random = self.random.f64();
            let heard = now + self.random.u64(..WAY);
            let way = WAY + self.random.u64(..WAY);
            let writer = &mut self.writers[index];
            let took = Duration::from_micros(heard - writer.sent);
            let wait = if won {
                writer.wins += 1;
                writer.gap = writer.gap.max(now - writer.won);
                writer.won = now;
                writer.contention_backoff.won(took, instant(heard), random);
                writer.contention_backoff.rest(instant(heard))
            } else {
                self.refused += 1;
                writer.contention_backoff.lost(took, instant(heard), random)
            };
            writer.known = self.version;
            writer.reads = !wait.is_zero();
            writer.sent = heard + micros(wait);
            writer.arrives = writer.sent + way;
        }
    }

    /// Without waits, each success would cost as many refusals as there are writers; without the rest, one writer
    /// would win all.
    #[test]
    fn rivals_take_turns_and_get_in_each_others_way_seldom() {
        for (count, most_refused) in [(2, 0.3), (8, 1.0), (32, 5.0)] {
            for seed in 0..4 {
                let field = Field::of(count, seed).run();
                let wins: Vec<_> = field.writers.iter().map(|writer| writer.wins).collect();
                let all: usize = wins.iter().sum();
                let gap = field.writers.iter().map(|writer| writer.gap).max().unwrap();
                let refused = field.refused as f64 / all as f64;
                let seen = format!("{count} writers, seed {seed}: {refused:.2} {gap} us, {wins:?}");
                assert!(refused < most_refused, "{seen}");
                assert!(
                    *wins.iter().min().unwrap() * count * 3 > all,
                    "a third of its share: {seen}"
                );
                assert!(gap < END / 2, "{seen}");
            }
        }
    }

    /// No wait for a single writer, or for one that rarely meets another.
    #[test]
    fn no_wait_without_a_second_refusal() {
        let (mut contention_backoff, took) =
            (ContentionBackoff::default(), Duration::from_millis(1));
        let mut now = Instant::from_start(Duration::from_secs(1));
        for _ in 0..10 {
            assert_eq!(contention_backoff.rest(now), Duration::ZERO);
            assert_eq!(contention_backoff.lost(took, now, 0.9), Duration::ZERO);
            for _ in 0..10 {
                now = now + took;
                contention_backoff.won(took, now, 0.9);
                assert_eq!(contention_backoff.rest(now), Duration::ZERO);
                now = now + took * EXPECTS_OTHERS;
            }
        }
    }

    /// However slow the server is.
    #[test]
    fn no_wait_is_longer_than_a_second() {
        let (mut contention_backoff, now) =
            (ContentionBackoff::default(), Instant::from_start(Duration::from_secs(9)));
        for _ in 0..100 {
            let wait = contention_backoff.lost(Duration::from_secs(60), now, 0.999);
            assert!(wait <= MAX_PACE * 64, "{wait:?}");
        }
    }
}
