//! Frames written and read by hand, because our client is under test.

use anyhow::{Context, Result, ensure};
use bytes::{Bytes, BytesMut};
use lockkeeper_wire::{MAX_FRAME, split_frame, write_frame};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Sends one frame.
///
/// # Errors
///
/// The connection is broken.
pub async fn send(
    to: &mut (impl AsyncWrite + Unpin),
    encode: impl FnOnce(&mut BytesMut),
) -> Result<()> {
    let mut out = BytesMut::new();
    write_frame(&mut out, encode);
    Ok(to.write_all(&out).await?)
}

/// Reads the next frame; `input` holds bytes that have already arrived.
///
/// # Errors
///
/// The connection is broken, or the other side has closed it.
pub async fn next(from: &mut (impl AsyncRead + Unpin), input: &mut BytesMut) -> Result<Bytes> {
    loop {
        if let Some(frame) = split_frame(input, 4 * MAX_FRAME)? {
            return Ok(frame);
        }
        let count = from.read_buf(input).await.context("no reply")?;
        ensure!(count > 0, "the other side has hung up");
    }
}
