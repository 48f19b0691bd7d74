//! The number of the last acknowledged commit, in a file.
//!
//! The file has two places that are written in turn, each in a sector of its own: while one is written, the other is
//! intact.

use std::io;

use redb::StorageBackend;

/// The distance between the places, in bytes.
const DISTANCE: u64 = 4096;

/// Writes a number to its place.
pub(crate) fn write(file: &dyn StorageBackend, number: u64) -> io::Result<()> {
    file.write(number % 2 * DISTANCE, &encode(number))
}

/// Writes a number to both places, durably.
pub(super) fn write_twice(file: &dyn StorageBackend, number: u64) -> io::Result<()> {
    // One after the other, so that at any time one is intact.
    write(file, number)?;
    file.write((number + 1) % 2 * DISTANCE, &encode(number))?;
    file.sync_data()
}

/// The newest number; `None` if neither place contains one.
pub(super) fn read(file: &dyn StorageBackend) -> io::Result<Option<u64>> {
    let mut newest = None;
    for offset in [0, DISTANCE] {
        let mut bytes = [0; 16];
        match file.read(offset, &mut bytes) {
            Ok(()) => newest = newest.max(decode(bytes)),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {}
            Err(e) => return Err(e),
        }
    }
    Ok(newest)
}

/// A number and its complement: neither an empty sector nor an incomplete write is valid.
fn encode(number: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..].copy_from_slice(&(!number).to_le_bytes());
    bytes
}

fn decode(bytes: [u8; 16]) -> Option<u64> {
    let [number, complement] = [&bytes[..8], &bytes[8..]]
        .map(|half| half.try_into().map(u64::from_le_bytes).unwrap_or_default());
    (number == !complement).then_some(number)
}
