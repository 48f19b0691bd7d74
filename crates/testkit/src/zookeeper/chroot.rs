//! Creates the node that a chroot names: servers do not create it, and a client whose chroot is missing can do nothing.

use anyhow::{Result, ensure};
use bytes::{Bytes, BytesMut};
use lockkeeper_wire::{
    AclList, ConnectRequest, CreateMode, CreateRequest, Decoder, ErrorCode, Record, ReplyHeader,
    Request,
};
use tokio::net::TcpStream;

use crate::frames;

/// Creates a persistent node directly below the root, unless it exists.
pub(super) async fn create(mut stream: TcpStream, path: &str) -> Result<()> {
    let hello = ConnectRequest::new_session(10_000);
    let request = Request::Create(CreateRequest {
        path: path.to_owned(),
        data: Bytes::new().into(),
        acl: AclList::OPEN,
        flags: CreateMode::Persistent.flags(),
    });
    frames::send(&mut stream, |out| hello.encode(out)).await?;
    frames::send(&mut stream, |out| request.encode(1, out)).await?;
    frames::send(&mut stream, |out| Request::CloseSession.encode(2, out)).await?;

    let mut input = BytesMut::new();
    let _welcome = frames::next(&mut stream, &mut input).await?;
    let mut reply = Decoder::new(frames::next(&mut stream, &mut input).await?);
    let error = ReplyHeader::decode(&mut reply)?.error;
    let exists = ErrorCode::NodeExists.code();
    ensure!(error == 0 || error == exists, "the server refuses to create {path}: error {error}");
    Ok(())
}
