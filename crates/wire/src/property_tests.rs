//! Every message survives a round trip, and arbitrary bytes never do harm.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use crate::codec::encoded;
use crate::*;

fn text() -> impl Strategy<Value = String> {
    proptest::collection::vec(any::<char>(), 0..12).prop_map(String::from_iter)
}

fn texts() -> impl Strategy<Value = Vec<String>> {
    proptest::collection::vec(text(), 0..4)
}

fn data() -> impl Strategy<Value = Bytes> {
    proptest::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from)
}

fn node_data() -> impl Strategy<Value = NodeData> {
    prop_oneof![Just(NodeData::NULL), data().prop_map(NodeData::from)]
}

fn acl() -> impl Strategy<Value = Vec<Acl>> {
    let entry = (any::<i32>(), text(), text())
        .prop_map(|(bits, scheme, id)| Acl::new(Permissions(bits), &scheme, id));
    proptest::collection::vec(entry, 0..3)
}

fn stat() -> impl Strategy<Value = Stat> {
    (any::<[i64; 6]>(), any::<[i32; 5]>()).prop_map(|(long, int)| Stat {
        czxid: Zxid(long[0]),
        mzxid: Zxid(long[1]),
        ctime: long[2],
        mtime: long[3],
        version: int[0],
        cversion: int[1],
        aversion: int[2],
        ephemeral_owner: SessionId(long[4]),
        data_length: int[3],
        num_children: int[4],
        pzxid: Zxid(long[5]),
    })
}

fn create() -> impl Strategy<Value = CreateRequest> {
    (text(), node_data(), acl(), any::<i32>()).prop_map(|(path, data, acl, flags)| CreateRequest {
        path,
        data,
        acl: acl.into(),
        flags,
    })
}

fn create_ttl() -> impl Strategy<Value = CreateTtlRequest> {
    (create(), any::<i64>()).prop_map(|(create, ttl_ms)| create.with_ttl(ttl_ms))
}

fn delete() -> impl Strategy<Value = DeleteRequest> {
    (text(), any::<i32>()).prop_map(|(path, version)| DeleteRequest { path, version })
}

fn set_data() -> impl Strategy<Value = SetDataRequest> {
    (text(), node_data(), any::<i32>()).prop_map(|(path, data, version)| SetDataRequest {
        path,
        data,
        version,
    })
}

fn check() -> impl Strategy<Value = CheckRequest> {
    (text(), any::<i32>()).prop_map(|(path, version)| CheckRequest { path, version })
}

fn path() -> impl Strategy<Value = PathRequest> {
    text().prop_map(|path| PathRequest { path })
}

fn path_watch() -> impl Strategy<Value = PathWatchRequest> {
    (text(), any::<bool>()).prop_map(|(path, watch)| PathWatchRequest { path, watch })
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        create().prop_map(Op::Create),
        create().prop_map(Op::Create2),
        create().prop_map(Op::CreateContainer),
        create_ttl().prop_map(Op::CreateTtl),
        delete().prop_map(Op::Delete),
        set_data().prop_map(Op::SetData),
        check().prop_map(Op::Check),
    ]
}

fn read_op() -> impl Strategy<Value = ReadOp> {
    prop_oneof![path().prop_map(ReadOp::GetData), path().prop_map(ReadOp::GetChildren)]
}

fn set_watches(persistent: bool) -> impl Strategy<Value = SetWatchesRequest> {
    (any::<i64>(), texts(), texts(), texts(), texts(), texts()).prop_map(
        move |(zxid, data, exist, child, p, r)| SetWatchesRequest {
            relative_zxid: Zxid(zxid),
            data,
            exist,
            child,
            persistent: if persistent { p } else { Vec::new() },
            persistent_recursive: if persistent { r } else { Vec::new() },
        },
    )
}

fn remove() -> impl Strategy<Value = RemoveWatchesRequest> {
    (text(), any::<i32>()).prop_map(|(path, kind)| RemoveWatchesRequest { path, kind })
}

fn request() -> impl Strategy<Value = Request> {
    let nodes = prop_oneof![
        create().prop_map(Request::Create),
        create().prop_map(Request::Create2),
        create().prop_map(Request::CreateContainer),
        create_ttl().prop_map(Request::CreateTtl),
        delete().prop_map(Request::Delete),
        set_data().prop_map(Request::SetData),
        check().prop_map(Request::Check),
        (text(), acl(), any::<i32>()).prop_map(|(path, acl, version)| Request::SetAcl(
            SetAclRequest { path, acl: acl.into(), version }
        )),
        proptest::collection::vec(op(), 0..4).prop_map(Request::Multi),
    ];
    let reads = prop_oneof![
        path_watch().prop_map(Request::Exists),
        path_watch().prop_map(Request::GetData),
        path_watch().prop_map(Request::GetChildren),
        path_watch().prop_map(Request::GetChildren2),
        path().prop_map(Request::GetAcl),
        path().prop_map(Request::Sync),
        path().prop_map(Request::GetEphemerals),
        path().prop_map(Request::GetAllChildrenNumber),
        proptest::collection::vec(read_op(), 0..4).prop_map(Request::MultiRead),
    ];
    let session = prop_oneof![
        Just(Request::Ping),
        Just(Request::WhoAmI),
        Just(Request::CloseSession),
        (any::<i32>(), text(), data())
            .prop_map(|(kind, scheme, auth)| Request::Auth(AuthRequest { kind, scheme, auth })),
        data().prop_map(|token| Request::Sasl(SaslRequest { token })),
        set_watches(false).prop_map(Request::SetWatches),
        set_watches(true).prop_map(Request::SetWatches2),
        (text(), any::<i32>())
            .prop_map(|(path, mode)| Request::AddWatch(AddWatchRequest { path, mode })),
        remove().prop_map(Request::RemoveWatches),
        remove().prop_map(Request::CheckWatches),
        (text(), text(), text(), any::<i64>()).prop_map(|(joining, leaving, new_members, id)| {
            Request::Reconfig(ReconfigRequest { joining, leaving, new_members, config_id: id })
        }),
    ];
    prop_oneof![nodes, reads, session]
}

fn error_code() -> impl Strategy<Value = ErrorCode> {
    (i32::MIN..0).prop_filter_map("0 is no error", ErrorCode::from_code)
}

fn op_result() -> impl Strategy<Value = OpResult> {
    prop_oneof![
        text().prop_map(|path| OpResult::Create { path }),
        (text(), stat()).prop_map(|(path, stat)| OpResult::Create2 { path, stat }),
        Just(OpResult::Delete),
        stat().prop_map(OpResult::SetData),
        Just(OpResult::Check),
        proptest::option::of(error_code()).prop_map(OpResult::Error),
    ]
}

fn read_result() -> impl Strategy<Value = ReadResult> {
    prop_oneof![
        (node_data(), stat()).prop_map(|(data, stat)| ReadResult::Data { data, stat }),
        texts().prop_map(ReadResult::Children),
        error_code().prop_map(ReadResult::Error),
    ]
}

fn response() -> impl Strategy<Value = (OpCode, Response)> {
    prop_oneof![
        Just((OpCode::Delete, Response::Empty)),
        text().prop_map(|path| (OpCode::Create, Response::Path(path))),
        (text(), stat())
            .prop_map(|(path, stat)| (OpCode::Create2, Response::Created { path, stat })),
        stat().prop_map(|stat| (OpCode::Exists, Response::Stat(stat))),
        (node_data(), stat())
            .prop_map(|(data, stat)| (OpCode::GetData, Response::Data { data, stat })),
        (acl(), stat()).prop_map(|(acl, stat)| (OpCode::GetAcl, Response::Acl { acl, stat })),
        texts().prop_map(|names| (OpCode::GetChildren, Response::Names(names))),
        (texts(), stat())
            .prop_map(|(names, stat)| (OpCode::GetChildren2, Response::Children { names, stat })),
        proptest::collection::vec(op_result(), 0..4)
            .prop_map(|results| (OpCode::Multi, Response::Multi(results))),
        proptest::collection::vec(read_result(), 0..4)
            .prop_map(|results| (OpCode::MultiRead, Response::MultiRead(results))),
        any::<i32>().prop_map(|n| (OpCode::GetAllChildrenNumber, Response::Count(n))),
        proptest::collection::vec((text(), text()), 0..3).prop_map(|pairs| {
            let infos = pairs.into_iter().map(|(scheme, user)| ClientInfo { scheme, user });
            (OpCode::WhoAmI, Response::Identities(infos.collect()))
        }),
        proptest::option::of(data()).prop_map(|token| (OpCode::Sasl, Response::Sasl(token))),
    ]
}

fn decode_whole<T>(
    bytes: BytesMut,
    decode: impl FnOnce(&mut Decoder) -> Result<T, DecodeError>,
) -> T {
    let mut input = Decoder::new(bytes.freeze());
    let value = decode(&mut input).expect("what was encoded can be decoded");
    assert_eq!(input.remaining(), 0, "nothing is left over");
    value
}

fn round_trip<T: Record + PartialEq + std::fmt::Debug>(value: &T) {
    let mut out = BytesMut::new();
    value.encode(&mut out);
    assert_eq!(&decode_whole(out, T::decode), value);
}

#[test]
fn records_have_the_lengths_that_they_say() {
    let header = ReplyHeader { xid: 1, zxid: Zxid(2), error: 3 };
    assert_eq!(encoded(&header).len(), ReplyHeader::LENGTH);
    assert_eq!(encoded(&Stat::default()).len(), Stat::LENGTH);
}

proptest! {
    #[test]
    fn requests_round_trip(request in request(), xid in any::<i32>()) {
        let mut out = BytesMut::new();
        request.encode(xid, &mut out);
        let decoded = decode_whole(out, |input| {
            let header = RequestHeader::decode(input)?;
            assert_eq!(header.xid, xid);
            Request::decode(header.op, input)
        });
        prop_assert_eq!(decoded, request);
    }

    #[test]
    fn responses_round_trip((op, response) in response()) {
        let mut out = BytesMut::new();
        response.encode(&mut out);
        prop_assert_eq!(decode_whole(out, |input| Response::decode(op, input)), response);
    }

    #[test]
    fn handshakes_round_trip(
        numbers in any::<(i32, i64, i32, i64)>(),
        password in data(),
        read_only in any::<Option<bool>>(),
    ) {
        let (protocol_version, zxid, timeout_ms, session) = numbers;
        round_trip(&ConnectRequest {
            protocol_version,
            last_zxid_seen: Zxid(zxid),
            timeout_ms,
            session_id: SessionId(session),
            password: password.clone(),
            read_only,
        });
        round_trip(&ConnectResponse {
            protocol_version,
            timeout_ms,
            session_id: SessionId(session),
            password,
            read_only,
        });
    }

    #[test]
    fn events_and_headers_round_trip(
        path in text(),
        kind in prop_oneof![Just(-1), 1..8],
        state in prop_oneof![Just(0), 3..8, Just(-112)],
        header in any::<(i32, i64, i32)>(),
    ) {
        round_trip(&WatchEvent {
            kind: EventKind::from_code(kind).unwrap(),
            state: KeeperState::from_code(state).unwrap(),
            path,
        });
        round_trip(&ReplyHeader { xid: header.0, zxid: Zxid(header.1), error: header.2 });
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let bytes = Bytes::from(bytes);
        let input = || Decoder::new(bytes.clone());
        for op in -12..110 {
            let _ = Request::decode(op, &mut input());
            if let Some(op) = OpCode::from_code(op) {
                let _ = Response::decode(op, &mut input());
            }
        }
        let _ = ConnectRequest::decode(&mut input());
        let _ = ConnectResponse::decode(&mut input());
        let _ = WatchEvent::decode(&mut input());
        let _ = split_frame(&mut BytesMut::from(&bytes[..]), MAX_FRAME);
    }

    #[test]
    fn cut_off_requests_are_errors_or_shorter_requests(request in request(), cut in any::<prop::sample::Index>()) {
        let mut out = BytesMut::new();
        request.encode(1, &mut out);
        let whole = out.freeze().slice(8..);
        let part = whole.slice(..cut.index(whole.len() + 1));
        let decoded = Request::decode(request.op().code(), &mut Decoder::new(part.clone()));
        prop_assert!(part.len() == whole.len() || decoded != Ok(request));
    }
}
