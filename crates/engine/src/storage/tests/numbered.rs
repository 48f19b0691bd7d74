//! Commits that show after a restart which of them are there, and whether they are complete.

use super::*;

/// Nodes in each commit: enough for several pages.
const BATCH: u64 = 40;

/// Commit number `n`: adds its nodes, removes those of the commit before the previous one, and counts itself.
pub(super) fn numbered(n: u64) -> Batch {
    let mut batch = Batch::default();
    for i in 0..BATCH {
        batch.put_new(Table::Nodes, node(n, i), format!("{n}").repeat(30));
        if let Some(old) = n.checked_sub(2) {
            batch.delete(Table::Nodes, node(old, i));
        }
    }
    batch.put(Table::Meta, "last", n.to_string());
    batch
}

fn node(n: u64, i: u64) -> String {
    format!("/locks/{i:02}/{n:010}")
}

/// The last commit found, after checking that exactly its nodes and those of the previous one are there.
pub(super) fn last_whole_commit(storage: &Storage) -> u64 {
    let all = contents(storage);
    let Some((Table::Meta, _, last)) = all.first() else {
        assert!(all.is_empty());
        return 0;
    };
    let last: u64 = last.parse().unwrap();
    let mut expected: Vec<String> =
        (last.max(2) - 1..=last).flat_map(|n| (0..BATCH).map(move |i| node(n, i))).collect();
    expected.sort();
    let found: Vec<String> = all.into_iter().skip(1).map(|(_, key, _)| key).collect();
    assert_eq!(found, expected, "commit {last} is incomplete");
    last
}
