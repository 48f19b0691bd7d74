//! Shortens foreign data for messages.

/// The beginning of some data, for messages.
pub(super) fn shown(data: &[u8]) -> String {
    const MAX_SHOWN_BYTES: usize = 16;
    let start = &data[..data.len().min(MAX_SHOWN_BYTES)];
    let more = if data.len() > MAX_SHOWN_BYTES { ", …" } else { "" };
    format!("{} bytes (\"{}\"{more})", data.len(), start.escape_ascii())
}
