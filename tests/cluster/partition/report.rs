//! The figures: lines, a table, a page, and a timeline for each form.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::partition::forms::Form;
use crate::partition::runs::{Belief, Library, Run, SESSION, SYNC_LIMIT, TICK};

/// One line for each library of a run.
pub(crate) fn lines(run: &Run) -> String {
    let mut text = String::new();
    for belief in &run.beliefs {
        let Belief { library, a_ended, b_held, .. } = belief;
        let (form, seed, overlap) = (run.form.name(), run.seed, belief.overlap());
        let _ = writeln!(
            text,
            "{form:13} seed {seed:<4} {library:21}  cut {:6.2} s  A stops {a_ended:6.2} s  \
             B holds {b_held:6.2} s  overlap {overlap:5.2} s",
            run.cut
        );
    }
    text
}

/// The table of all runs, in Markdown.
pub(crate) fn table(runs: &[Run]) -> String {
    let mut text = String::from(
        "| form | library | runs | A stops after (median) | B holds after (median) | runs with two \
         holders | overlap: median | longest |\n|---|---|--:|--:|--:|--:|--:|--:|\n",
    );
    for form in Form::ALL {
        for library in Library::ALL {
            let beliefs = beliefs(runs, form, library);
            if beliefs.is_empty() {
                continue;
            }
            let of = |value: fn(&Belief) -> f64| sorted(beliefs.iter().map(|b| value(b)).collect());
            let overlaps = of(Belief::overlap);
            let both = overlaps.iter().filter(|overlap| **overlap > 0.0).count();
            let _ = writeln!(
                text,
                "| {} | {library} | {} | {:.1} s | {:.1} s | {both} | {:.2} s | {:.2} s |",
                form.name(),
                beliefs.len(),
                median(&of(|b| b.a_ended)),
                median(&of(|b| b.b_held)),
                median(&overlaps),
                overlaps.last().copied().unwrap_or_default(),
            );
        }
    }
    text
}

fn beliefs(runs: &[Run], form: Form, library: Library) -> Vec<&Belief> {
    let runs = runs.iter().filter(|run| run.form == form);
    runs.flat_map(|run| &run.beliefs).filter(|belief| belief.library == library).collect()
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

fn median(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// Writes the page and the timelines into a folder.
pub(crate) fn write(folder: &Path, runs: &[Run]) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fs::write(folder.join("partition.md"), page(runs))?;
    for form in Form::ALL {
        if let Some(run) = typical(runs, form) {
            fs::write(folder.join(file(form)), timeline(run))?;
        }
    }
    Ok(())
}

fn file(form: Form) -> String {
    format!("partition-{}.svg", form.name())
}

fn page(runs: &[Run]) -> String {
    let mut text = format!(
        "# The partitioned server\n\n\
         Written by `cargo xtask partition`; do not edit.\n\n\
         Three Apache ZooKeeper servers (tick {} s, syncLimit {SYNC_LIMIT}) and their clients on \
         hosts of their own, session timeout {} s. A holds a lock through one server, B waits for \
         it through the others; then A's server leaves the others, but goes on serving A, or one \
         of the two is paused, or the link between them cut: see the forms below. The \
         *overlap* is the time for which A had not been told to stop although B had been told \
         that it holds. For Curator and kazoo, A stops at the connection listener's first \
         `SUSPENDED`, which is the earliest that a careful program can; for Curator's \
         `LeaderLatch`, when it says `notLeader`; for Lockkeeper, when the guard says that the \
         lock, or the leadership, is lost.\n\n",
        TICK.as_secs(),
        SESSION.as_secs()
    );
    text.push_str(&table(runs));
    let still: Vec<String> = [Library::Curator, Library::Kazoo]
        .iter()
        .filter_map(|library| {
            let of: Vec<_> =
                Form::ALL.iter().flat_map(|form| beliefs(runs, *form, *library)).collect();
            let still = of.iter().filter(|belief| belief.a_still_says_held).count();
            (!of.is_empty()).then(|| format!("{library} {still} of {}", of.len()))
        })
        .collect();
    if !still.is_empty() {
        let _ = writeln!(
            text,
            "\nRuns in which A's lock object still said \"held\" when B held as well and A had \
             been warned: {}.",
            still.join(", ")
        );
    }
    for form in Form::ALL {
        if typical(runs, form).is_some() {
            let _ = writeln!(text, "\n## {}\n\n![timeline]({})", form.title(), file(form));
        }
    }
    text
}

/// The run to draw: the one with the median of all overlaps.
fn typical(runs: &[Run], form: Form) -> Option<&Run> {
    let total = |run: &Run| run.beliefs.iter().map(Belief::overlap).sum::<f64>();
    let mut runs: Vec<_> = runs.iter().filter(|run| run.form == form).collect();
    runs.sort_by(|a, b| total(a).total_cmp(&total(b)));
    runs.get(runs.len() / 2).copied()
}

const LEFT: f64 = 170.0;
const SECOND: f64 = 34.0;
const LANE: f64 = 22.0;
const TOP: f64 = 46.0;

/// Who believes what, from one second before the fault to the end.
fn timeline(run: &Run) -> String {
    let last = run.beliefs.iter().flat_map(|b| [b.a_ended, b.b_held]).fold(run.cut, f64::max);
    let (start, end) = (-1.0, last.ceil() + 1.0);
    let x = |time: f64| LEFT + (time - start) * SECOND;
    let height = TOP + LANE * 2.6 * run.beliefs.len() as f64 + 30.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0}\" height=\"{height:.0}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"8\" y=\"18\" font-size=\"14\">{}</text>\n",
        x(end) + 16.0,
        run.form.title()
    );
    let text =
        |x: f64, y: f64, words: &str| format!("<text x=\"{x:.1}\" y=\"{y:.1}\">{words}</text>\n");
    let bar = |from: f64, to: f64, y: f64, colour: &str| {
        format!(
            "<rect x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"16\" fill=\"{colour}\"/>\n",
            x(from),
            (to - from).max(0.0) * SECOND
        )
    };
    let line = |time: f64, colour: &str| {
        format!(
            "<line x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{TOP}\" y2=\"{1:.1}\" stroke=\"{colour}\"/>\n",
            x(time),
            height - 24.0
        )
    };
    let mut y = TOP + 4.0;
    for belief in &run.beliefs {
        svg += &text(8.0, y + 12.0, &format!("{}: A", belief.library));
        svg += &bar(start, belief.a_ended, y, "#7aa6d8");
        if belief.overlap() > 0.0 {
            svg += &bar(belief.b_held, belief.a_ended, y, "#d9534f");
            let words = format!("two holders for {:.1} s", belief.overlap());
            svg += &text(x(belief.b_held) + 4.0, y + 12.0, &words);
        }
        y += LANE;
        svg += &text(8.0, y + 12.0, "B");
        svg += &bar(belief.b_held, end, y, "#8cc38c");
        y += LANE * 1.6;
    }
    svg += &line(run.cut, "#333");
    svg += &text(x(run.cut) + 3.0, TOP - 6.0, "cut");
    for second in 0..=end as i32 {
        let at = f64::from(second);
        svg += &text(x(at) - 3.0, height - 8.0, &second.to_string());
        svg += &format!(
            "<line x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{1:.1}\" y2=\"{2:.1}\" stroke=\"#999\"/>\n",
            x(at),
            height - 24.0,
            height - 20.0
        );
    }
    svg + "</svg>\n"
}
