//! Runs that happen once for each key, or once in each period, on whichever machine comes first.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lockkeeper_testkit::peers::{self, Peer};
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::wall_clock::WallClock;
use lockkeeper_testkit::zookeeper::ZooKeeperEnsemble;

use crate::serve::served;
use crate::support::{Ended, Home, LIMIT, eventually};

#[test]
fn a_key_runs_once_and_its_exit_code_is_that_of_the_run() -> Result<()> {
    let home = Home::new()?;
    let first =
        home.runs("--once-per v1 job", "echo $LOCKKEEPER_KEY $LOCKKEEPER_ATTEMPT; exit 7")?;
    assert_eq!((first.code, first.stdout.as_str()), (Some(7), "v1 1\n"), "{first:?}");
    for options in ["", "--if-unfinished skip", "-n"] {
        let again = home.runs(&format!("--once-per v1 {options} job"), "echo again")?;
        assert_eq!((again.code, again.stdout.as_str()), (Some(7), ""), "{again:?}");
        assert!(again.stderr.contains("/job for v1 has already run: "), "{again:?}");
        assert!(again.stderr.contains("with exit code 7"), "{again:?}");
    }
    let again = home.runs("--once-per v1 -q job", "echo again")?;
    assert_eq!((again.code, again.stderr.as_str()), (Some(7), ""), "{again:?}");
    assert_eq!(home.runs("--once-per v2 job", "exit 0")?.code, Some(0));
    // What runs without a key is not recorded, and has the lock as ever.
    assert_eq!(home.runs("job", "echo $LOCKKEEPER_KEY.")?.stdout, ".\n");
    Ok(())
}

#[test]
fn a_period_is_run_once() -> Result<()> {
    let home = Home::new()?;
    let first = home.runs("--every 1d job", "echo $LOCKKEEPER_KEY")?;
    assert_eq!(first.code, Some(0), "{first:?}");
    let second = home.runs("--every 1d job", "echo $LOCKKEEPER_KEY")?;
    // Midnight may have come between them.
    assert!(second.stdout.is_empty() || second.stdout != first.stdout, "{second:?}");
    assert_eq!(home.runs("--every 1d other", "echo ran")?.stdout, "ran\n");
    Ok(())
}

/// Starts a run that has begun, and kills it with its command.
async fn dies_in(home: &Home, options: &str) -> Result<()> {
    let mut run = home.says("began", "dying", options, "echo began; exec sleep 600").await?;
    run.kill();
    run.end(LIMIT).await?;
    Ok(())
}

#[tokio::test]
async fn what_died_runs_again_or_is_skipped_as_asked_for() -> Result<()> {
    let home = Home::new()?;
    dies_in(&home, "--once-per v1 job").await?;
    let skipped = home.runs("--once-per v1 --if-unfinished skip -E 9 -q job", "echo ran")?;
    assert_eq!((skipped.code, skipped.stdout.as_str()), (Some(9), ""), "{skipped:?}");
    assert!(skipped.stderr.contains("is not run again"), "said also with -q: {skipped:?}");
    assert!(skipped.stderr.contains("no end is recorded"), "{skipped:?}");

    let again = home.runs("--once-per v1 -q job", "echo attempt $LOCKKEEPER_ATTEMPT")?;
    assert_eq!((again.code, again.stdout.as_str()), (Some(0), "attempt 2\n"), "{again:?}");
    assert!(again.stderr.contains("runs again: "), "said also with -q: {again:?}");
    assert!(again.stderr.contains("--if-unfinished skip"), "and what to do about it: {again:?}");
    assert_eq!(home.runs("--once-per v1 job", "echo ran")?.stdout, "");
    Ok(())
}

/// Symptom: of a job that takes longer than its period, each tick had a process that waited, and ran late.
#[tokio::test]
async fn who_waits_gives_way_to_the_next_tick() -> Result<()> {
    let home = Home::new()?;
    let _holder =
        home.says("began", "holder", "--every 1d job", "echo began; exec sleep 600").await?;
    for options in ["", "-w 10m"] {
        let late = home.runs(&format!("--every 1s {options} job"), "echo ran")?;
        assert_eq!((late.code, late.stdout.as_str()), (Some(1), ""), "{late:?}");
        assert!(late.stderr.contains("/job is not free, held by"), "{late:?}");
    }
    Ok(())
}

/// It was asked to end, and says that its work is done.
#[test]
fn what_was_asked_to_end_and_did_its_work_is_done() -> Result<()> {
    let home = Home::new()?;
    let script = "trap 'exit 0' TERM; kill -TERM $PPID; while :; do sleep 0.05; done";
    assert_eq!(home.runs("--once-per v1 job", script)?.code, Some(0));
    assert_eq!(home.runs("--once-per v1 job", "echo ran")?.stdout, "");
    Ok(())
}

/// A run that waits takes over for one whose machine dies.
#[tokio::test]
async fn who_waits_takes_over() -> Result<()> {
    let home = Home::new()?;
    let mut first =
        home.says("began", "first", "--once-per v1 job", "echo began; exec sleep 600").await?;
    let mut second =
        home.starts("second", "--once-per v1 job", "echo attempt $LOCKKEEPER_ATTEMPT")?;
    home.in_line("job", 2)?;
    first.kill();
    second.prints("attempt 2", LIMIT).await?;
    assert_eq!(second.end(LIMIT).await?.code(), Some(0), "{}", second.tail());
    Ok(())
}

#[test]
fn what_was_ended_counts_as_unfinished() -> Result<()> {
    let home = Home::new()?;
    for (key, options, script, code) in [
        ("signal", "", "kill -TERM $$", 143),
        ("limit", "--max-run 100ms", "exec sleep 600", 124),
        ("missing", "", "exec /nonexistent/command", 127),
        // As Java does.
        ("asked", "", "trap 'exit 143' TERM; kill -TERM $PPID; while :; do sleep 0.05; done", 143),
    ] {
        let ended = home.runs(&format!("--once-per {key} {options} job"), script)?;
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(ended.stderr.contains("counts as unfinished"), "{ended:?}");
        assert_eq!(home.runs(&format!("--once-per {key} job"), "echo ran")?.stdout, "ran\n");
    }
    Ok(())
}

#[test]
fn runs_are_listed_and_forgotten() -> Result<()> {
    let home = Home::new()?;
    let none = home.ends("ticks job")?;
    assert_eq!(none.code, Some(1), "{none:?}");
    home.runs("--once-per a/b%c job", "exit 3")?;
    home.runs("--every 1d job", "exit 0")?;

    let listed = home.json("ticks job")?;
    let runs = listed["runs"].as_array().context("runs")?;
    let seen: Vec<_> =
        runs.iter().map(|run| (run["kind"].as_str(), run["code"].as_i64())).collect();
    assert_eq!(seen, [(Some("key"), Some(3)), (Some("tick"), Some(0))], "{listed}");
    assert_eq!(runs[0]["key"], "a/b%c");
    assert_eq!(runs[1]["key"], listed["last_tick"]);
    assert_eq!(runs[0]["owner"]["label"], "sh");
    let text = home.ends("ticks job")?;
    assert!(text.stdout.lines().count() == 3 && text.stdout.contains("a/b%c"), "{text:?}");
    let last = home.ends("ticks job -n 1")?;
    assert!(last.stdout.contains("1 earlier") && !last.stdout.contains("a/b%c"), "{last:?}");

    assert_eq!(home.ends("ticks job --forget a/b%c")?.code, Some(0));
    let unknown = home.ends("ticks job --forget a/b%c")?;
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert_eq!(home.runs("--once-per a/b%c job", "echo ran")?.stdout, "ran\n");
    let locks = home.json("ls")?;
    assert_eq!(locks["locks"].as_array().map(Vec::len), Some(0), "records are no locks: {locks}");
    Ok(())
}

#[test]
fn what_cannot_run_once_is_refused() -> Result<()> {
    let home = Home::new()?;
    for (options, word) in [
        ("--every 7m job", "does not divide a day"),
        ("--every 0 job", "longer than zero"),
        ("--every 1h --once-per x job", "cannot be used with"),
        ("--every 1h --shared job", "omit --shared"),
        ("--every 1h --permits 2 job", "omit --shared"),
        ("--every 1h job other", "with one lock only"),
        ("--if-unfinished skip job", "requires --once-per or --every"),
    ] {
        let refused = home.runs(options, "echo ran")?;
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(64), ""), "{refused:?}");
        assert!(refused.stderr.contains(word), "{word:?}: {refused:?}");
    }
    let none = home.ends("ticks job -n 0")?;
    assert_eq!(none.code, Some(64), "{none:?}");
    let eaten = home.runs("--once-per -q job", "echo ran")?;
    assert_eq!(eaten.code, Some(64), "an option is no key: {eaten:?}");
    let empty = Ended::of(&mut home.command_of(&["run", "--once-per", "", "job", "--", "true"]))?;
    assert_eq!(empty.code, Some(64), "{empty:?}");
    let long = "x".repeat(256);
    let refused = home.runs(&format!("--once-per {long} job"), "echo ran")?;
    assert_eq!(refused.code, Some(64), "{refused:?}");
    assert!(refused.stderr.contains("use a hash"), "{refused:?}");
    Ok(())
}

/// A machine whose clock is a year ahead runs nothing, and keeps no other machine from its ticks.
#[test]
fn a_clock_that_is_far_ahead_is_refused() -> Result<()> {
    if !peers::ready("command: once", &[Peer::WallClock]) {
        return Ok(());
    }
    let home = Home::new()?;
    let clock = WallClock::new("ahead", home.folder())?;
    home.runs("job", "true")?;
    clock.jump_to(365 * 24 * 3_600)?;
    let arguments = ["run", "--every", "1s", "job", "--", "echo", "ran"];
    let mut command = home.command_of(&arguments);
    clock.show_to(&mut command);
    let refused = Ended::of(&mut command)?;
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(78), ""), "{refused:?}");
    assert!(refused.stderr.contains("ahead of the servers'"), "{refused:?}");
    assert_eq!(Ended::of(&mut home.command_of(&arguments))?.stdout, "ran\n");
    Ok(())
}

/// What comes of one start of a job.
#[derive(Debug)]
struct Started {
    job: &'static str,
    pid: u32,
    /// Whether the command certainly ended with a recorded end, if it ran.
    is_recorded: bool,
}

/// Two jobs: one runs again without a recorded end, the other does not.
const JOBS: [(&str, &str); 2] = [("again", "rerun"), ("never", "skip")];

/// How many ticks there are to be, of both jobs together.
const TICKS: usize = 200;

/// How far the clocks are apart, in seconds.
const APART: i64 = 30;

/// Longer than a busy machine takes for all ticks.
const ALL: Duration = Duration::from_secs(200);

/// A machine with a clock of its own, on which a timer starts the jobs again and again.
struct TickMachine {
    home: Home,
    clock: WallClock,
    log: Arc<Path>,
    started: Arc<Mutex<Vec<Started>>>,
    is_over: Arc<AtomicBool>,
    random: fastrand::Rng,
}

impl TickMachine {
    fn new(
        log: &Arc<Path>,
        started: &Arc<Mutex<Vec<Started>>>,
        over: &Arc<AtomicBool>,
        seed: u64,
    ) -> Result<Self> {
        let home = Home::new()?;
        let clock = WallClock::new("own", home.folder())?;
        let (log, started, is_over) = (Arc::clone(log), Arc::clone(started), Arc::clone(over));
        Ok(Self { home, clock, log, started, is_over, random: fastrand::Rng::with_seed(seed) })
    }

    /// Starts the jobs, and kills some of them, until it is over.
    async fn start_jobs(mut self, servers: String) -> Result<()> {
        for number in 0.. {
            if self.is_over.load(Ordering::Relaxed) {
                break;
            }
            let (job, policy) = JOBS[self.random.usize(0..JOBS.len())];
            let script = format!(
                "echo $LOCKKEEPER_KEY $LOCKKEEPER_ATTEMPT $PPID >> {}/{job}; sleep 0.0{}",
                self.log.display(),
                self.random.u8(1..9)
            );
            let options = format!(
                "run -q -w 5s --session-timeout 4s --connect {servers} --every 200ms \
                 --if-unfinished {policy} {job} -- sh -c"
            );
            let mut arguments: Vec<_> = options.split_whitespace().collect();
            arguments.push(&script);
            let mut command = self.home.command_of(&arguments);
            self.clock.show_to(&mut command);
            let mut run = Process::spawn(&format!("{job}-{number}"), &command, self.home.folder())?;
            let pid = run.id();
            let is_killed = self.random.u8(0..8) == 0;
            if is_killed {
                tokio::time::sleep(Duration::from_millis(self.random.u64(0..120))).await;
                run.kill();
            }
            let code = run.end(LIMIT).await?.code();
            let is_recorded = code == Some(0) && !run.stderr().contains("may not be recorded");
            self.started.lock().unwrap().push(Started { job, pid, is_recorded });
        }
        Ok(())
    }
}

/// Each tick that a job ran at, in the order in which it ran, with the process that ran it.
fn ran(log: &Path, job: &str) -> Vec<(String, u32, u32)> {
    let text = fs::read_to_string(log.join(job)).unwrap_or_default();
    let line = |line: &str| {
        let mut words = line.split(' ');
        let (tick, attempt, pid) = (words.next()?, words.next()?, words.next()?);
        // A whole second is written without a fraction.
        let fraction = if tick.contains('.') { "" } else { ".0" };
        Some((tick.replace('Z', fraction), attempt.parse().ok()?, pid.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

/// Has two machines whose clocks are apart start both jobs, while `disturb` does what it likes to the servers.
async fn two_machines(servers: &str, mut disturb: impl AsyncFnMut() -> Result<()>) -> Result<()> {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let folder = Home::new()?;
    let log: Arc<Path> = Arc::from(folder.folder());
    let (started, over) = (Arc::default(), Arc::<AtomicBool>::default());
    let mut clocks = Vec::new();
    let mut machines = Vec::new();
    for number in 0..2 {
        let machine = TickMachine::new(&log, &started, &over, seed ^ number)?;
        clocks.push(WallClock::new("own", machine.home.folder())?);
        machines.push(tokio::spawn(machine.start_jobs(servers.to_owned())));
    }

    // One is ahead, and from time to time it is the other one.
    let finished = async {
        let (mut ahead, mut next_jump) = (0, 0);
        let distinct = |job: &str| {
            let ticks = ran(&log, job).into_iter().map(|(tick, ..)| tick);
            ticks.collect::<BTreeSet<_>>().len()
        };
        loop {
            let all = JOBS.iter().map(|(job, _)| distinct(job)).sum::<usize>();
            if all >= TICKS {
                return Ok(());
            }
            if all >= next_jump {
                next_jump = all + TICKS / 6;
                // First the one that is to be ahead: the floor is where the other one was.
                clocks[1 - ahead].jump_to(APART / 2)?;
                clocks[ahead].jump_to(-APART / 2)?;
                ahead = 1 - ahead;
            }
            disturb().await?;
            tokio::time::sleep(Duration::from_millis(20)).await;
            if let Some(machine) = machines.iter().position(tokio::task::JoinHandle::is_finished) {
                machines.swap_remove(machine).await??;
                anyhow::bail!("a machine has stopped");
            }
        }
    };
    tokio::time::timeout(ALL, finished).await.context("the jobs do not run")??;
    over.store(true, Ordering::Relaxed);
    for machine in machines {
        machine.await??;
    }

    let started = started.lock().unwrap();
    for (job, policy) in JOBS {
        let ran = ran(&log, job);
        let ticks: Vec<_> = ran.iter().map(|(tick, ..)| tick.as_str()).collect();
        let late = ticks.windows(2).find(|pair| pair[0] > pair[1]);
        ensure!(late.is_none(), "{job}: a tick ran after a later one: {late:?}");
        let mut by_tick = BTreeMap::<_, Vec<_>>::new();
        for (tick, attempt, pid) in &ran {
            by_tick.entry(tick).or_default().push((*attempt, *pid));
        }
        for (tick, runs) in by_tick {
            ensure!(policy == "rerun" || runs.len() == 1, "{job} {tick}: {runs:?}");
            let attempts: Vec<_> = runs.iter().map(|(attempt, _)| *attempt).collect();
            ensure!(attempts.is_sorted_by(|a, b| a < b), "{job} {tick}: {runs:?}");
            for (_, pid) in &runs[..runs.len() - 1] {
                let had_end =
                    started.iter().any(|s| s.job == job && s.pid == *pid && s.is_recorded);
                ensure!(!had_end, "{job} {tick}: {pid} had ended: {runs:?}");
            }
        }
    }
    let again = ran(&log, "again");
    println!("{} ticks of one job, {} starts in all", again.len(), started.len());
    Ok(())
}

/// The clocks of two machines are 30 s apart; runs and the engine are killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_tick_runs_once_with_an_engine() -> Result<()> {
    if !peers::ready("command: once", &[Peer::WallClock]) {
        return Ok(());
    }
    let home = Home::new()?;
    let (server, address) = served(&home, "s", "--listen 127.0.0.1:0 --data-dir d").await?;
    let mut server = Some(server);
    let mut rounds = 0;
    let again = format!("--listen {address} --data-dir d");
    two_machines(&address, async || {
        rounds += 1;
        if rounds % 100 == 0 {
            drop(server.take());
            server = Some(served(&home, "s", &again).await?.0);
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_tick_runs_once_with_an_ensemble() -> Result<()> {
    if !peers::ready("command: once", &[Peer::WallClock, Peer::ZooKeeper]) {
        return Ok(());
    }
    let mut ensemble = ZooKeeperEnsemble::start(3).await?;
    let (mut rounds, servers) = (0, ensemble.connect_string());
    two_machines(&servers, async || {
        rounds += 1;
        let (index, phase) = (rounds / 150 % 3, rounds % 150);
        match phase {
            40 => ensemble.kill(index),
            80 => ensemble.restart(index).await?,
            _ => {}
        }
        Ok(())
    })
    .await
}

/// Symptom of a lock alone: it is free again when the timer of the other machine fires.
#[test]
fn a_late_machine_runs_nothing() -> Result<()> {
    if !peers::ready("command: once", &[Peer::WallClock]) {
        return Ok(());
    }
    let home = Home::new()?;
    assert_eq!(home.runs("--every 1s job", "echo ran")?.stdout, "ran\n");
    let clock = WallClock::new("late", home.folder())?;
    clock.jump_to(-3_600)?;
    let mut command = home.command_of(&["run", "--every", "1s", "job", "--", "echo", "ran"]);
    clock.show_to(&mut command);
    let late = Ended::of(&mut command)?;
    assert_eq!((late.code, late.stdout.as_str()), (Some(1), ""), "{late:?}");
    assert!(
        late.stderr.contains("is skipped: the command has already been started for"),
        "{late:?}"
    );
    eventually("the next tick", || Ok(home.runs("--every 1s job", "echo ran")?.stdout == "ran\n"))
}
