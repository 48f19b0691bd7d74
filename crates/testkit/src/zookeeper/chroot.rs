//! Making the node that a chroot names: no server makes it by itself, and a client whose chroot is
//! missing can do nothing.

use anyhow::{Context, Result, ensure};
use bytes::{Bytes, BytesMut};
use lockkeeper_wire::{
    AclList, ConnectRequest, CreateMode, CreateRequest, Decoder, ErrorCode, MAX_FRAME, Record,
    ReplyHeader, Request, split_frame, write_frame,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Creates a persistent node directly below the root, unless it is there.
///
/// Speaks the protocol by hand: our client is what the tests are about.
pub(super) async fn create(mut stream: TcpStream, path: &str) -> Result<()> {
    let mut out = BytesMut::new();
    write_frame(&mut out, |out| hello().encode(out));
    let request = Request::Create(CreateRequest {
        path: path.to_owned(),
        data: Bytes::new().into(),
        acl: AclList::OPEN,
        flags: CreateMode::Persistent.flags(),
    });
    write_frame(&mut out, |out| request.encode(1, out));
    write_frame(&mut out, |out| Request::CloseSession.encode(2, out));
    stream.write_all(&out).await?;

    let mut input = BytesMut::new();
    let _hello = frame(&mut stream, &mut input).await?;
    let mut reply = Decoder::new(frame(&mut stream, &mut input).await?);
    let error = ReplyHeader::decode(&mut reply)?.error;
    let exists = ErrorCode::NodeExists.code();
    ensure!(error == 0 || error == exists, "the server refuses to create {path}: error {error}");
    Ok(())
}

fn hello() -> ConnectRequest {
    ConnectRequest::new_session(10_000)
}

async fn frame(stream: &mut TcpStream, input: &mut BytesMut) -> Result<Bytes> {
    loop {
        if let Some(frame) = split_frame(input, MAX_FRAME)? {
            return Ok(frame);
        }
        ensure!(stream.read_buf(input).await.context("no reply")? > 0, "no reply");
    }
}
