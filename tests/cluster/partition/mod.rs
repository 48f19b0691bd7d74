//! What exact leases are worth: the server of a lock's holder leaves the others, but goes on
//! serving the holder, and the lock is given to somebody else.
//!
//! Three real ZooKeeper servers and all clients are on hosts of their own (network namespaces).
//! A holds the lock through a server that is then cut off; B waits for it through the others. The
//! *overlap* is the time for which A was not told to stop although B had been told to go on.
//! Ours must be zero, always.
//!
//! As a test, each form runs once, with our library only. `cargo xtask partition` runs all of it,
//! with Apache Curator and kazoo beside ours, and Curator's `LeaderLatch` beside our `Election`, and
//! writes `docs/guarantees/partition.md`.

mod forms;
pub(crate) mod holder;
mod report;
mod runs;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use lockkeeper_testkit::peers::{self, Peer};
use lockkeeper_tests::{choose, read_options};

use crate::partition::forms::Form;
use crate::partition::runs::{Laboratory, Library, Run};

/// What the command line asks for.
struct Plan {
    runs: u64,
    seed: u64,
    forms: Vec<Form>,
    libraries: Vec<Library>,
    /// Where the table and the timelines go.
    docs: Option<PathBuf>,
}

/// What `cargo xtask partition` starts.
pub(crate) async fn run(arguments: &[String]) -> Result<()> {
    experiment(&Plan::parse(arguments)?).await
}

/// What `cargo test` starts.
pub(crate) async fn short() -> Result<()> {
    let (forms, libraries) = (Form::ALL.to_vec(), Library::OURS.to_vec());
    experiment(&Plan { runs: 1, seed: 1, forms, libraries, docs: None }).await
}

async fn experiment(plan: &Plan) -> Result<()> {
    let mut needed = vec![Peer::ZooKeeper, Peer::Network];
    needed.extend(plan.libraries.iter().filter_map(|library| library.peer()));
    if !peers::ready("partition", &needed) {
        return Ok(());
    }
    let laboratory = Laboratory::start().await?;
    let mut runs = Vec::new();
    for seed in plan.seed..plan.seed + plan.runs {
        for form in &plan.forms {
            let run = laboratory.run(*form, &plan.libraries, seed).await;
            let run = run.with_context(|| format!("form {}, seed {seed}", form.name()))?;
            print!("{}", report::lines(&run));
            runs.push(run);
            // After each, so that an experiment that is stopped leaves what it has measured.
            if let Some(docs) = &plan.docs {
                report::write(docs, &runs)?;
            }
        }
    }
    println!("\n{}", report::table(&runs));
    judge(&runs)
}

/// The peers' figures are what they are; ours must be zero.
fn judge(runs: &[Run]) -> Result<()> {
    for run in runs {
        for belief in run.beliefs.iter().filter(|belief| Library::OURS.contains(&belief.library)) {
            if belief.overlap() > 0.0 {
                bail!(
                    "two holders for {:.3} s. Again: cargo xtask partition --runs 1 --form {} \
                     --seed {}",
                    belief.overlap(),
                    run.form.name(),
                    run.seed
                );
            }
        }
    }
    Ok(())
}

impl Plan {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut plan = Self {
            runs: 20,
            seed: 1,
            forms: Form::ALL.to_vec(),
            libraries: Library::ALL.to_vec(),
            docs: None,
        };
        read_options(arguments, |option, value| {
            match option {
                "--runs" => plan.runs = value.parse()?,
                "--seed" => plan.seed = value.parse()?,
                "--docs" => plan.docs = Some(value.into()),
                "--form" => plan.forms = choose(value, &Form::ALL, |form| form.name())?,
                "--peers" => plan.libraries = choose(value, &Library::ALL, |one| one.name())?,
                _ => bail!("there is no such option"),
            }
            Ok(())
        })?;
        Ok(plan)
    }
}
