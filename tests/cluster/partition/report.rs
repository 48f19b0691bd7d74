//! The figures: lines, a table, a page, and a timeline for each form.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Result;
use lockkeeper_tests::{DOCS, all, median, name};

use super::{Belief, CutForm, CutRun, Library, SESSION};
use crate::servers::{SYNC_LIMIT, TICK};

/// One line for each library of a run.
pub(super) fn lines(run: &CutRun) -> String {
    let mut text = String::new();
    for belief in &run.beliefs {
        let Belief { library, a_ended, b_held, .. } = belief;
        let (form, library, overlap) = (name(run.form), library.title(), belief.overlap());
        let _ = writeln!(
            text,
            "{form:13} seed {:<4} {library:21}  cut {:6.2} s  A stops {a_ended:6.2} s  B holds \
             {b_held:6.2} s  overlap {overlap:5.2} s",
            run.seed, run.cut
        );
    }
    text
}

/// The table of all runs, in Markdown.
pub(super) fn table(runs: &[CutRun]) -> String {
    let mut text = String::from(
        "| form | library | runs | A stops after (median) | B holds after (median) | runs with two \
         holders | overlap: median | longest |\n|---|---|--:|--:|--:|--:|--:|--:|\n",
    );
    for (form, library) in
        all().into_iter().flat_map(|form| all().into_iter().map(move |it| (form, it)))
    {
        let beliefs = beliefs(runs, form, library);
        if beliefs.is_empty() {
            continue;
        }
        let middle = |value: fn(&Belief) -> f64| median(beliefs.iter().map(|one| value(one)));
        let overlaps = beliefs.iter().map(|belief| belief.overlap());
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.1} s | {:.1} s | {} | {:.2} s | {:.2} s |",
            name(form),
            library.title(),
            beliefs.len(),
            middle(|belief| belief.a_ended),
            middle(|belief| belief.b_held),
            overlaps.clone().filter(|overlap| *overlap > 0.0).count(),
            middle(Belief::overlap),
            overlaps.fold(0.0, f64::max),
        );
    }
    text
}

fn beliefs(runs: &[CutRun], form: CutForm, library: Library) -> Vec<&Belief> {
    let runs = runs.iter().filter(|run| run.form == form);
    runs.flat_map(|run| &run.beliefs).filter(|belief| belief.library == library).collect()
}

/// Writes the page and the timelines.
pub(super) fn write(runs: &[CutRun]) -> Result<()> {
    let folder = Path::new(DOCS);
    fs::write(folder.join("partition.md"), page(runs))?;
    for form in all::<CutForm>() {
        if let Some(run) = typical(runs, form) {
            fs::write(folder.join(file(form)), timeline(run))?;
        }
    }
    Ok(())
}

fn file(form: CutForm) -> String {
    format!("partition-{}.svg", name(form))
}

fn page(runs: &[CutRun]) -> String {
    let mut text = format!(
        "# The partitioned server\n\n\
         Written by `cargo xtask partition`; do not edit.\n\n\
         Three Apache ZooKeeper servers (tick {} s, syncLimit {SYNC_LIMIT}, no wait for their disks) and their clients on \
         hosts of their own, session timeout {} s. A holds a lock through one server, B waits for \
         it through the others; then A's server leaves the others, but goes on serving A, or one \
         of the two is paused, or the link between them cut: see the forms below. The \
         *overlap* is the time for which A had not been told to stop although B had been told \
         that it holds. For Curator and kazoo, A stops at the connection listener's first \
         `SUSPENDED`, which is the earliest that a careful program can; for Curator's \
         `LeaderLatch`, when it says `notLeader`; for Lockkeeper, when the guard says that the \
         lock, or the leadership, is lost.\n\n{}",
        TICK.as_secs(),
        SESSION.as_secs(),
        table(runs)
    );
    let still = [Library::Curator, Library::Kazoo].map(|library| {
        let of: Vec<_> = all().into_iter().flat_map(|form| beliefs(runs, form, library)).collect();
        let still = of.iter().filter(|belief| belief.a_still_says_held).count();
        format!("{} {still} of {}", library.title(), of.len())
    });
    let _ = writeln!(
        text,
        "\nRuns in which A's lock object still said \"held\" when B held as well and A had been \
         warned: {}.",
        still.join(", ")
    );
    for form in all::<CutForm>().into_iter().filter(|form| typical(runs, *form).is_some()) {
        let _ = writeln!(text, "\n## {}\n\n![timeline]({})", form.title(), file(form));
    }
    text
}

/// The run to draw: the one with the median of all overlaps.
fn typical(runs: &[CutRun], form: CutForm) -> Option<&CutRun> {
    let total = |run: &CutRun| run.beliefs.iter().map(Belief::overlap).sum::<f64>();
    let mut runs: Vec<_> = runs.iter().filter(|run| run.form == form).collect();
    runs.sort_by(|a, b| total(a).total_cmp(&total(b)));
    runs.get(runs.len() / 2).copied()
}

const LEFT: f64 = 170.0;
const SECOND: f64 = 34.0;
const LANE: f64 = 22.0;
const TOP: f64 = 46.0;

/// Who believes what, from one second before the fault to the end.
fn timeline(run: &CutRun) -> String {
    let last = run.beliefs.iter().flat_map(|b| [b.a_ended, b.b_held]).fold(run.cut, f64::max);
    let (start, end) = (-1.0, last.ceil() + 1.0);
    let x = |time: f64| LEFT + (time - start) * SECOND;
    let (width, height) = (x(end) + 16.0, TOP + LANE * 2.6 * run.beliefs.len() as f64 + 30.0);
    let text =
        |x: f64, y: f64, words: &str| format!("<text x=\"{x:.1}\" y=\"{y:.1}\">{words}</text>\n");
    let bar = |from: f64, to: f64, y: f64, colour: &str| {
        let (x, width) = (x(from), (to - from).max(0.0) * SECOND);
        format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"16\" fill=\"{colour}\"/>\n"
        )
    };
    let line = |time: f64, from: f64, to: f64, colour: &str| {
        let x = x(time);
        format!(
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{from:.1}\" y2=\"{to:.1}\" stroke=\"{colour}\"/>\n"
        )
    };

    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"8\" y=\"18\" font-size=\"14\">{}</text>\n",
        run.form.title()
    );
    let mut y = TOP + 4.0;
    for belief in &run.beliefs {
        svg += &text(8.0, y + 12.0, &format!("{}: A", belief.library.title()));
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
    svg += &line(run.cut, TOP, height - 24.0, "#333");
    svg += &text(x(run.cut) + 3.0, TOP - 6.0, "cut");
    for second in 0..=end as i32 {
        let at = f64::from(second);
        svg += &text(x(at) - 3.0, height - 8.0, &second.to_string());
        svg += &line(at, height - 24.0, height - 20.0, "#999");
    }
    svg + "</svg>\n"
}
