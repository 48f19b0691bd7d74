//! When a write over a value is tried that other programs write too: pure, with the time and random numbers
//! as arguments.
//!
//! Of the writes over one state of a value, one succeeds. Servers log and sync the others as well, and who
//! was refused knows the new state at the same time as who was not. If all tried again at once, each success
//! would cost as many transactions as there are rivals; if only the refused ones waited, the one that
//! succeeds would never meet one again, and go on for ever. So:
//!
//! - After a first refusal it is tried again at once: programs that write now and then rarely meet twice.
//! - After further ones it waits, at random within a window that grows, and then shrinks: a window that
//!   is long enough for a few rivals is found fast, and who has lost for long goes before the others.
//! - Whoever has met a rival lately has a turn of some writes in a row, and rests after it, in which the
//!   rivals come in.
//!
//! All times are in the pace of the handle: what a write takes, about. Why it is like this:
//! `docs/decisions/0028`.

use std::time::Duration;

use lockkeeper_client::Instant;

/// The windows of the waits after a second refusal in a row, and further ones; the last one for all others.
/// A wait takes a half of its window at least.
const WINDOWS: [u32; 8] = [4, 8, 16, 32, 64, 32, 16, 8];

/// How long a turn is.
const TURN: u32 = 16;

/// How long a rest is at most.
const REST: u32 = 32;

/// For how long a rival is expected after one was met.
const MEMORY: u32 = 2_048;

/// The longest pace, so that nobody waits for longer than a second.
const SLOWEST: Duration = Duration::from_millis(16);

/// What a writer knows of its rivals.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rivalry {
    /// How long a write takes, about; zero before the first one.
    pace: Duration,
    /// How often in a row a rival was quicker.
    losses: usize,
    /// When one was quicker last.
    met: Option<Instant>,
    /// When the present turn began.
    turn: Option<Instant>,
    /// When the present rest ends.
    rest: Option<Instant>,
}

impl Rivalry {
    /// A rival was quicker: for how long to wait before the next try. `random` is at least 0 and less than 1.
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
        if self.met.is_none_or(|met| now - met > self.pace * MEMORY) {
            (self.met, self.turn) = (None, None);
            return;
        }
        let begun = *self.turn.get_or_insert(now);
        if now - begun >= self.pace * TURN {
            self.turn = None;
            self.rest = Some(now + (self.pace * REST).mul_f64(random));
        }
    }

    /// Something new is to be written: for how long to rest before.
    pub(super) fn rest(&mut self, now: Instant) -> Duration {
        self.losses = 0;
        self.rest.take().map_or(Duration::ZERO, |end| end - now)
    }

    fn learn(&mut self, took: Duration) {
        let took = took.min(SLOWEST);
        self.pace = match self.pace {
            Duration::ZERO => took,
            pace => (pace * 7 + took) / 8,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writers that begin anew as soon as one write has succeeded, and a server that syncs what has come
    /// until the last sync was over, in simulated microseconds.
    struct Field {
        random: fastrand::Rng,
        writers: Vec<Writer>,
        /// How often the value was written.
        version: u64,
        /// Tries that were refused.
        refused: usize,
    }

    #[derive(Default)]
    struct Writer {
        rivalry: Rivalry,
        /// What it takes the version for.
        known: u64,
        /// Whether it reads before it tries.
        reads: bool,
        /// When what it does next arrives, and was sent.
        arrives: u64,
        sent: u64,
        wins: usize,
        /// When it won last, and the longest time between two.
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
                // They do not see what is under way.
                self.read(now);

                // The first one that knows the version; the others hear of the one that it wrote.
                let winner = synced.iter().position(|it| self.writers[*it].known == self.version);
                self.version += u64::from(winner.is_some());
                for (place, index) in synced.into_iter().enumerate() {
                    self.answer(index, Some(place) == winner, now);
                }
            }
            self
        }

        /// Answers the reads that have come, each of which a try follows.
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

        /// Has one try again as the rivalry says, with what is beside the answer, or what it reads after
        /// a wait.
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
                writer.rivalry.won(took, instant(heard), random);
                writer.rivalry.rest(instant(heard))
            } else {
                self.refused += 1;
                writer.rivalry.lost(took, instant(heard), random)
            };
            writer.known = self.version;
            writer.reads = !wait.is_zero();
            writer.sent = heard + micros(wait);
            writer.arrives = writer.sent + way;
        }
    }

    /// With every try at once so many are refused for each win as there are rivals; without the rest, one
    /// writer wins all.
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

    /// No wait at all for who writes alone, nor for who meets a rival now and then.
    #[test]
    fn nobody_waits_without_a_second_refusal() {
        let (mut rivalry, took) = (Rivalry::default(), Duration::from_millis(1));
        let mut now = Instant::from_start(Duration::from_secs(1));
        for _ in 0..10 {
            assert_eq!(rivalry.rest(now), Duration::ZERO);
            assert_eq!(rivalry.lost(took, now, 0.9), Duration::ZERO);
            for _ in 0..10 {
                now = now + took;
                rivalry.won(took, now, 0.9);
                assert_eq!(rivalry.rest(now), Duration::ZERO);
                now = now + took * MEMORY;
            }
        }
    }

    /// However slow the server is.
    #[test]
    fn nobody_waits_for_longer_than_a_second() {
        let (mut rivalry, now) = (Rivalry::default(), Instant::from_start(Duration::from_secs(9)));
        for _ in 0..100 {
            let wait = rivalry.lost(Duration::from_secs(60), now, 0.999);
            assert!(wait <= SLOWEST * 64, "{wait:?}");
        }
    }
}
