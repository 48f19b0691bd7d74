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
mod holder;
mod report;
mod run;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use lockkeeper_testkit::peers::{self, Peer};
use lockkeeper_tests::{choose, exit_code, is_wanted, read_options};

use crate::forms::Form;
use crate::run::{Laboratory, Library, Run};

/// What the command line asks for.
struct Plan {
    runs: u64,
    seed: u64,
    forms: Vec<Form>,
    libraries: Vec<Library>,
    /// Where the table and the timelines go.
    docs: Option<PathBuf>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.first().map(String::as_str) {
        Some("holder") => holder::hold(&arguments[1..]).await,
        Some("leader") => holder::lead(&arguments[1..]).await,
        Some("run") => match Plan::parse(&arguments[1..]) {
            Ok(plan) => experiment(&plan).await,
            Err(error) => Err(error),
        },
        _ => as_a_test(&arguments).await,
    };
    exit_code(result)
}

/// What `cargo test` starts. There is no libtest: this program is also one of the contenders.
async fn as_a_test(arguments: &[String]) -> Result<()> {
    const NAME: &str = "partition::no_overlap_in_any_form";
    if is_wanted(NAME, arguments) {
        let libraries = Library::OURS.to_vec();
        let forms = Form::ALL.to_vec();
        experiment(&Plan { runs: 1, seed: 1, forms, libraries, docs: None }).await?;
        println!("test {NAME} ... ok");
    }
    Ok(())
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

/// Where the programs are that use other libraries.
fn interop() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/interop"))
}
