//! What of a server's memory is its own.

use crate::book::Book;
use crate::report::page::{Page, short};
use crate::targets::{NO_PERSISTENCE, ON_ZOOKEEPER, SYNC};

/// When it was looked at, as metrics and on the page.
const WHEN: [(&str, &str); 2] = [("idle", "just started"), ("after_load", "after the load")];

pub(super) fn write(page: &mut Page, book: &Book) {
    let number = |who, metric: &str| book.median("resources", who, 0, metric);
    let mut rows = Vec::new();
    for (name, who) in
        [("engine, sync", SYNC), ("ZooKeeper", ON_ZOOKEEPER), ("redis", NO_PERSISTENCE)]
    {
        for (when, said) in WHEN {
            let part = |part: &str| number(who, &format!("{when}_{part}mib"));
            if let (Some(all), Some(mapped), Some(private)) =
                (part(""), part("mapped_"), part("private_"))
            {
                let mut line = vec![name.to_owned(), said.to_owned()];
                line.extend([all, mapped, private].map(short));
                rows.push(line);
            }
        }
    }
    if rows.is_empty() {
        return;
    }
    page.line(
        "The memory of P11 in its two parts. Pages of files are those of the program and its \
         libraries: the kernel shares them among all processes that use the file, and takes them \
         back when it needs room. Private are heap and stacks. After the load, the heap has in it \
         what the allocator keeps for the next one.\n",
    );
    let head = ["server", "when", "resident, MiB", "pages of files", "private"];
    page.table(&head, &rows);
    let after = |who, part: &str| number(who, &format!("after_load_{part}mib"));
    if let (Some(theirs), Some(ours), Some(mapped), Some(private)) =
        (after(ON_ZOOKEEPER, ""), after(SYNC, ""), after(SYNC, "mapped_"), after(SYNC, "private_"))
    {
        page.line(&format!(
            "A twentieth of ZooKeeper's memory after the load is {} MiB. The engine has {} MiB, of \
             which {} MiB are pages of files and {} MiB its own.\n",
            short(theirs / 20.0),
            short(ours),
            short(mapped),
            short(private)
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::Number;

    #[test]
    fn resident_memory_is_shown_in_its_parts_as_far_as_it_was_measured() {
        let number = |who, metric, value| ("resources", who, 0, metric, value);
        let ours: [Number<'_>; 6] = [
            number(SYNC, "idle_mib", 8.0),
            number(SYNC, "idle_mapped_mib", 5.0),
            number(SYNC, "idle_private_mib", 3.0),
            number(SYNC, "after_load_mib", 17.0),
            number(SYNC, "after_load_mapped_mib", 6.0),
            number(SYNC, "after_load_private_mib", 11.0),
        ];
        let theirs = [
            number(ON_ZOOKEEPER, "after_load_mib", 240.0),
            number(ON_ZOOKEEPER, "after_load_mapped_mib", 30.0),
            number(ON_ZOOKEEPER, "after_load_private_mib", 210.0),
        ];
        let written = |numbers: &[Number<'_>]| {
            let mut page = Page::default();
            write(&mut page, &Book::of(numbers));
            String::from(page)
        };
        let page = written(&[&ours[..], &theirs].concat());
        for line in [
            "| engine, sync | just started | 8 | 5 | 3 |",
            "| engine, sync | after the load | 17 | 6 | 11 |",
            "| ZooKeeper | after the load | 240 | 30 | 210 |",
            "after the load is 12 MiB. The engine has 17 MiB, of which 6 MiB are pages of files and \
             11 MiB its own.",
        ] {
            assert!(page.contains(line), "{line} is not in\n{page}");
        }
        assert!(!page.contains("| ZooKeeper | just started"), "{page}");
        assert!(!written(&ours).contains("twentieth"));
        assert_eq!(written(&[]), "");
    }
}
