//! Shortens foreign data for messages.

/// The beginning of some data, for messages.
pub(super) fn shown(data: &[u8]) -> String {
    const MOST: usize = 16;
    let start = &data[..data.len().min(MOST)];
    let more = if data.len() > MOST { ", …" } else { "" };
    format!("{} bytes (\"{}\"{more})", data.len(), start.escape_ascii())
}
