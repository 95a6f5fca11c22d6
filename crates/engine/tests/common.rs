//! One request at a time, for tests of what an engine keeps between runs.

use forebay_block::Op;
use forebay_engine::{Done, Engine, Session, Submission};

/// Submits a request, with memory full of `fill` where it needs some, and waits for the answer.
pub fn submit_one(session: &mut Session, mut request: Submission, fill: u8) -> Done {
    if matches!(request.op, Op::Read | Op::Write) {
        let mut buffer = session.buffer(request.length as usize);
        buffer.fill(fill);
        request.buffer = Some(buffer);
    }
    let (mut requests, mut done) = (vec![request], Vec::new());
    session.submit(&mut requests, &mut done);
    while done.is_empty() {
        session.wait(None, &mut done);
    }
    done.remove(0)
}

/// As [`submit_one`], in a session of its own, for a request that must succeed. Returns the byte that
/// its data consist of; 0 without data.
pub fn perform(engine: &Engine, request: Submission, fill: u8) -> u8 {
    let (offset, length) = (request.offset, request.length as usize);
    let done = submit_one(&mut engine.session().unwrap(), request, fill);
    assert_eq!(done.result, Ok(()));
    let Some(buffer) = done.request.buffer else { return 0 };
    assert!(buffer[..length].iter().all(|&b| b == buffer[0]), "a mixture at {offset}");
    buffer[0]
}
