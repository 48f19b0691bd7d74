//! Invariants for minted ids.

use std::collections::BTreeMap;

use super::judge::told;
use crate::data_event::DataEvent;
use crate::history::Entry;

/// No id is minted twice. The ids of one holder of a number grow, and those of the next holder are larger than all
/// earlier ones, even those minted after the number was lost; but not where nodes of current holders are deleted.
pub(crate) fn ids_are_once(entries: &[Entry]) -> Result<(), String> {
    let mut minted: BTreeMap<u32, Vec<Row<'_>>> = BTreeMap::new();
    for (entry, told) in told(entries) {
        if let DataEvent::Minted { number, token, first, last } = told {
            let row = Row { entry, token: *token, first: *first, last: *last };
            minted.entry(*number).or_default().push(row);
        }
    }

    for rows in minted.values_mut() {
        rows.sort_by_key(|row| row.first);
        for pair in rows.windows(2) {
            let (one, next) = (&pair[0], &pair[1]);
            if one.last >= next.first || one.token > next.token {
                return Err(format!("{:?}, and {:?}", one.entry, next.entry));
            }
        }
    }
    Ok(())
}

/// Ids that a holder has minted in a row.
struct Row<'a> {
    entry: &'a Entry,
    /// Equal for all rows where nodes of current holders are deleted.
    token: u128,
    first: i64,
    last: i64,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::history::What;

    fn history(rows: &[(u128, i64, i64)]) -> Vec<Entry> {
        let entry = |(token, first, last): &(u128, i64, i64)| {
            let told = DataEvent::Minted { number: 3, token: *token, first: *first, last: *last };
            Entry { at: Duration::ZERO, who: "x".to_owned(), what: What::Data(told) }
        };
        rows.iter().map(entry).collect()
    }

    #[test]
    fn ids_that_come_again_or_too_late_are_found() {
        // A program that has lost its number continues to mint.
        assert_eq!(
            ids_are_once(&history(&[(1, 5, 9), (2, 30, 33), (1, 10, 29), (2, 34, 34)])),
            Ok(())
        );
        for wrong in [[(1, 5, 9), (1, 9, 12)], [(1, 5, 9), (2, 9, 9)], [(2, 30, 33), (1, 29, 30)]] {
            assert!(ids_are_once(&history(&wrong)).is_err(), "{wrong:?}");
        }
    }
}
