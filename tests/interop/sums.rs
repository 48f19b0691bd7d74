//! One number, in a counter or a value, to which programs on Curator and kazoo and tasks of ours add, while programs are killed and
//! replies are lost. Lockkeeper counts each add once. The adds that the other libraries lose or count twice are
//! limited by their kills and lost replies. A Lockkeeper add is larger than all adds of the others
//! together, so that the sum shows the part of each.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lockkeeper::{Client, Counter, CounterLayout, Outcome, Shared, ValueError};
use lockkeeper_testkit::proxy::{Loss, Proxy};
use lockkeeper_wire::OpCode;

use crate::counters::{COUNTER, Kind, adder, adds};
use crate::theirs::Language::{Java, Python};
use crate::theirs::{Place, Theirs};
use crate::{seed_of, time_of_a_contest};

/// How many tasks of ours add, each through a client of its own.
const OURS: usize = 2;

/// What ours add at a time. An integer has room for as many adds as there is time for.
const STEP: i64 = 1 << 16;

/// More adds than any program can make.
const ENDLESS: i64 = 1_000_000_000;

tests! {
    fn sum_of_a_long_with_curator() =
        contest("a long", Kept::In(CounterLayout::CuratorLong), &[(Java, "long"); 2]);
    fn sum_of_an_integer_with_curator_and_kazoo() = contest(
        "an integer",
        Kept::In(CounterLayout::CuratorInt),
        &[(Java, "int"), (Java, "shared"), (Python, "curator")],
    );
    fn sum_of_a_shared_count_with_curator() =
        contest("a shared count", Kept::In(CounterLayout::CuratorInt), &[(Java, "shared"); 2]);
    fn sum_of_a_shared_value_with_curator() =
        contest("a shared value", Kept::AsValue, &[(Java, "text"); 2]);
    fn sum_of_digits_with_kazoo() =
        contest("digits", Kept::In(CounterLayout::KazooAscii), &[(Python, "ascii"); 2]);
}

/// How the number is kept.
#[derive(Clone, Copy)]
enum Kept {
    In(CounterLayout),
    /// As a value, which is its digits.
    AsValue,
}

/// The number, as ours have it.
enum Number {
    Counter(Counter),
    Value(Shared<i64>),
}

impl Number {
    fn new(client: &Client, kept: Kept) -> Result<Self> {
        Ok(match kept {
            Kept::In(layout) => {
                Self::Counter(Counter::builder(client, COUNTER).layout(layout).build()?)
            }
            Kept::AsValue => Self::Value(Shared::new(client, COUNTER)?),
        })
    }

    /// The number before and after.
    async fn add(&self, amount: i64) -> Result<(i64, i64), ValueError> {
        match self {
            Self::Counter(counter) => {
                let added = counter.add(amount).await?;
                Ok((added.before, added.after))
            }
            Self::Value(value) => {
                let mut before = 0;
                let add = |old: Option<&i64>| {
                    before = old.copied().unwrap_or(0);
                    before + amount
                };
                let after = value.update(add).await?.value;
                Ok((before, after))
            }
        }
    }
}

/// The values before and after each add.
type Adds = Vec<(i64, i64)>;

/// A program of theirs, which is started again when it was killed.
struct Other {
    kind: Kind,
    proxy: Proxy,
    through: String,
    adder: Theirs,
}

struct Contest {
    others: Vec<Other>,
    random: fastrand::Rng,
    /// The results of killed programs.
    told: Adds,
    kills: usize,
    losses: usize,
    ends: Instant,
}

async fn contest(suite: &str, kept: Kept, others: &[Kind]) -> Result<()> {
    let languages: Vec<_> = others.iter().map(|(language, _)| *language).collect();
    let Some(place) = Place::with("counters", &languages).await? else { return Ok(()) };
    let seed = seed_of(&format!("the sum of {suite}"));
    run(&place, kept, others, seed).await.with_context(|| format!("LOCKKEEPER_SEED={seed}"))
}

async fn run(place: &Place, kept: Kept, others: &[Kind], seed: u64) -> Result<()> {
    let number = Number::new(&place.client, kept)?;
    number.add(0).await?;
    let mut contest = Contest {
        others: Vec::new(),
        random: fastrand::Rng::with_seed(seed),
        told: Vec::new(),
        kills: 0,
        losses: 0,
        ends: Instant::now() + time_of_a_contest(),
    };
    for &kind in others {
        let (proxy, through) = place.proxy().await?;
        let adder = contest.adder(kind, &through)?;
        contest.others.push(Other { kind, proxy, through, adder });
    }
    // Those in Java need a moment to come up.
    for other in &mut contest.others {
        other.adder.prints("ADDED ").await?;
    }
    contest.ends = Instant::now() + time_of_a_contest();

    let (mut proxies, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..OURS {
        let (proxy, through) = place.proxy().await?;
        let client = Client::connect(&through).await?;
        let number = Number::new(&client, kept)?;
        ours.push(tokio::spawn(add(client, number, contest.ends)));
        proxies.push(proxy);
    }
    contest.go_wrong(&proxies).await?;
    let mut own = Vec::new();
    for task in ours {
        own.extend(task.await??);
    }
    contest.finish().await?;
    let (sum, _) = number.add(0).await?;
    contest.judge(own, sum)
}

/// Adds until then, and returns the results.
async fn add(client: Client, number: Number, ends: Instant) -> Result<Adds> {
    let mut told = Vec::new();
    while Instant::now() < ends {
        let session = client.session_id();
        match number.add(STEP).await {
            Ok(added) => told.push(added),
            // No session ends here, so no outcome may be unknown.
            Err(error) => {
                let known = error.outcome() == Outcome::NotApplied;
                ensure!(known, "{error:?}; the session was {session}");
            }
        }
        // Theirs read and write one after the other, and would never get between two adds of ours.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    client.close().await;
    Ok(told)
}

impl Contest {
    fn adder(&self, kind: Kind, through: &str) -> Result<Theirs> {
        let left = self.ends.saturating_duration_since(Instant::now()).as_secs().max(1);
        adder(kind, through, (ENDLESS, left))
    }

    /// Loses replies of all programs, and sometimes kills a program of another library.
    async fn go_wrong(&mut self, ours: &[Proxy]) -> Result<()> {
        while Instant::now() + Duration::from_secs(2) < self.ends || self.kills == 0 {
            ours[self.random.usize(..ours.len())].lose_next(OpCode::Multi, Loss::BeforeReply);
            let index = self.random.usize(..self.others.len());
            if self.random.u8(0..4) == 0 {
                self.kill(index)?;
            } else if self.others[index].proxy.losses_to_come() == 0 {
                // One at a time: theirs give up after several in a row, such as those that have come
                // together while it was starting.
                self.losses += 1;
                self.others[index].proxy.lose_next(OpCode::SetData, Loss::BeforeReply);
            }
            tokio::time::sleep(Duration::from_millis(self.random.u64(200..1_000))).await;
        }
        Ok(())
    }

    fn kill(&mut self, index: usize) -> Result<()> {
        let Other { kind, through, .. } = &self.others[index];
        let next = self.adder(*kind, through)?;
        let mut killed = std::mem::replace(&mut self.others[index].adder, next);
        killed.process.kill();
        self.told.extend(adds(&killed)?);
        self.kills += 1;
        Ok(())
    }

    /// Waits for their end, at the time that they were given.
    async fn finish(&mut self) -> Result<()> {
        for other in &mut self.others {
            other.adder.ends().await?;
            self.told.extend(adds(&other.adder)?);
        }
        Ok(())
    }

    fn judge(&self, mut own: Adds, sum: i64) -> Result<()> {
        own.sort_unstable();
        for (number, (before, after)) in (1..).zip(&own) {
            let is_so = before + STEP == *after && after / STEP == number;
            ensure!(is_so, "add {number} of Lockkeeper returned {before} and {after}");
        }

        let (ours, theirs) = (i64::try_from(own.len())?, i64::try_from(self.told.len())?);
        ensure!(sum / STEP == ours, "{ours} adds of ours are {} in the sum", sum / STEP);
        // Written by other libraries but not reported: by a killed program, or a second time.
        let untold = sum % STEP - theirs;
        let (kills, losses) = (self.kills, self.losses);
        println!(
            "{ours} adds of ours, {theirs} that theirs were told of, {untold} more by theirs, with {kills} \
             kills and {losses} lost replies"
        );
        ensure!(ours > 0 && theirs > 0, "a library never got to add");
        ensure!((0..=i64::try_from(kills + losses)?).contains(&untold), "the sum is wrong: {sum}");
        // The results of Lockkeeper's adds are unique, except for adds that other libraries do not count as written.
        let places: BTreeSet<_> = own.iter().map(|(_, after)| *after).collect();
        let foreign = self.told.iter().filter(|(_, after)| places.contains(after)).count();
        ensure!(foreign == 0, "{foreign} adds of Lockkeeper were also returned to other libraries");
        Ok(())
    }
}
