//! Why a waiter of another process costs more the more there are.

use crate::book::{Book, Entry};
use crate::report::page::{Page, short};

const MANY: &str = "engine, os, many processes";

/// What the first and the last of a curve say of each step between them.
struct Curve {
    few: (usize, f64),
    many: (usize, f64),
}

impl Curve {
    fn of(book: &Book, metric: &str) -> Option<Self> {
        let found = book.of_waiters(MANY, metric);
        let point = |entry: &Entry| (entry.key.tasks, entry.median);
        let (few, many) = (point(found.first()?), point(found.last()?));
        (few.0 < many.0).then_some(Self { few, many })
    }

    fn slope(&self) -> f64 {
        (self.many.1 - self.few.1) / (self.many.0 - self.few.0) as f64
    }
}

pub(super) fn write(page: &mut Page, book: &Book) {
    let curve = |metric| Curve::of(book, metric);
    let (Some(bytes), Some(time), Some(next)) =
        (curve("bytes_per_waiter"), curve("time_per_waiter_us"), curve("next_holder_us"))
    else {
        return;
    };
    page.line(&format!(
        "P13 has two curves. Within one process, tasks stand in a line of their own, of which only the \
         first is in the one on the server: who comes sends nothing. Whoever comes from another \
         process finds its place by one listing of the whole line, as nothing else tells who is \
         ahead, so that its cost grows with the line: from {} waiters to {}, by {} bytes (a name of \
         55 characters, and its length) and {} us for each that is there already. In this row all \
         processes are one program on the engine's machine, which has to read all these listings. \
         A release is one event in a line of any length: the next holder has the lock after {} and \
         {} us.\n",
        short(bytes.few.0 as f64),
        short(bytes.many.0 as f64),
        short(bytes.slope()),
        short(time.slope()),
        short(next.few.1),
        short(next.many.1),
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_that_is_there_already_costs_its_name() {
        let who = ("lockkeeper", MANY);
        let numbers = [
            ("waiters", who, 10_000, "bytes_per_waiter", 592_250.0),
            ("waiters", who, 10, "bytes_per_waiter", 2_840.0),
            ("waiters", who, 10_000, "time_per_waiter_us", 5_035.0),
            ("waiters", who, 10, "time_per_waiter_us", 40.0),
            ("waiters", who, 10_000, "next_holder_us", 440.0),
            ("waiters", who, 10, "next_holder_us", 341.0),
        ];
        let written = |numbers| {
            let mut page = Page::default();
            write(&mut page, &Book::of(numbers));
            String::from(page)
        };
        let page = written(&numbers);
        for part in [
            "from 10 waiters to 10,000, by 59 bytes",
            "and 0.5 us for each",
            "after 341 and 440 us",
        ] {
            assert!(page.contains(part), "{part} is not in\n{page}");
        }
        assert_eq!(written(&numbers[..5]), "");
    }
}
