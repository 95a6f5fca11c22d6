//! HTTP for the control address: all input of a client is bounded in size, time and number.
//!
//! One thread reads and writes for all clients. Orders to the engine block, and run on separate
//! threads. A connection carries one request, so that it ends: the head and the body must arrive in
//! time, and the client must read the answer in time; the order itself may take hours. When the
//! limit on connections is reached, the connection that has waited longest for its client's request
//! is closed to make room for the next one, so that requests that never end do not delay others.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::time::Instant;

use super::access::Access;
use crate::error::ServeError;
use crate::listener::{Listener, SocketFile};

/// Maximum number of simultaneous connections.
const CONNECTIONS_MAX: usize = 64;
/// How long a client has to send its request before another may take its place.
const ASKING_TIME_MIN: Duration = Duration::from_millis(100);
/// Maximum number of orders carried out at the same time.
const ORDERS_MAX: usize = 16;
/// Maximum size of the request line and headers, in bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Maximum number of headers in a request.
const HEADERS_MAX: usize = 64;
/// Maximum size of a body that is read, in bytes. No request needs a body.
const BODY_BYTES_MAX: u64 = 64 << 10;
/// How long the head of a request may take to arrive, and then its body.
const READ_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a client may take to read its answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// How long to wait when a connection cannot be accepted, as when no file descriptor is left.
const PAUSE: Duration = Duration::from_millis(20);

/// A request.
#[derive(Debug)]
pub(super) struct Question {
    /// Whether this is an order (`POST`) or a question (`GET`).
    pub order: bool,
    /// The path, without the query string.
    pub path: String,
    /// The query string, without the question mark.
    pub query: String,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    /// The HTTP status.
    pub code: u16,
    /// The body.
    pub body: String,
    /// The media type of the body.
    pub kind: &'static str,
}

impl Answer {
    /// An answer in JSON.
    pub fn json(code: u16, body: String) -> Answer {
        Answer { code, body, kind: "application/json" }
    }

    /// An error message, in JSON.
    pub fn error(code: u16, message: &str) -> Answer {
        let mut body = serde_json::json!({ "error": message }).to_string();
        body.push('\n');
        Answer::json(code, body)
    }
}

/// Answers questions. May block.
pub(super) type Answerer = dyn Fn(&Question) -> Answer + Send + Sync;

/// Prepares to serve. The returned function serves until `stop` is true, then finishes the requests
/// that have arrived.
///
/// # Errors
/// If the listener cannot be used.
pub(super) fn run(
    listener: Listener,
    access: Access,
    answerer: Arc<Answerer>,
    stop: watch::Receiver<bool>,
) -> Result<impl FnOnce() + Send + 'static, ServeError> {
    let system = |e| ServeError::System("serve the control address", e);
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_io().enable_time().build().map_err(system)?;
    let (socket, file) = {
        let _inside = runtime.enter();
        Socket::new(listener).map_err(system)?
    };
    let rooms = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let orders = Arc::new(Semaphore::new(ORDERS_MAX));
    let server = Server { access, answerer, orders, stop };
    Ok(move || runtime.block_on(Arc::new(server).serve(socket, file, rooms)))
}

enum Socket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Socket {
    fn new(listener: Listener) -> std::io::Result<(Socket, Option<SocketFile>)> {
        Ok(match listener {
            Listener::Unix(file, listener) => {
                listener.set_nonblocking(true)?;
                (Socket::Unix(UnixListener::from_std(listener)?), Some(file))
            }
            Listener::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                (Socket::Tcp(TcpListener::from_std(listener)?), None)
            }
        })
    }
}

enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// A connection.
struct Guest {
    since: Instant,
    /// Whether the whole request has arrived, or the connection has ended.
    asked: AtomicBool,
    /// Notified when the connection has to close before its request has arrived.
    makes_room: Notify,
}

impl Guest {
    fn new() -> Guest {
        let asked = AtomicBool::new(false);
        Guest { since: Instant::now(), asked, makes_room: Notify::new() }
    }

    fn has_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }
}

/// Waits for room for one more connection. If there is none, the oldest of `guests` whose request
/// has not arrived is closed, once it has had [`ASKING_TIME_MIN`] to send it.
async fn room(
    rooms: &Arc<Semaphore>,
    guests: &mut VecDeque<Arc<Guest>>,
) -> Option<OwnedSemaphorePermit> {
    loop {
        guests.retain(|guest| !guest.has_asked());
        let room = rooms.clone().acquire_owned();
        let Some(oldest) = guests.front() else { return room.await.ok() };
        tokio::select! {
            biased;
            room = room => return room.ok(),
            () = tokio::time::sleep_until(oldest.since + ASKING_TIME_MIN) => {}
        }
        if !oldest.has_asked() {
            oldest.makes_room.notify_one();
            return rooms.clone().acquire_owned().await.ok();
        }
    }
}

struct Server {
    access: Access,
    answerer: Arc<Answerer>,
    orders: Arc<Semaphore>,
    stop: watch::Receiver<bool>,
}

impl Server {
    async fn serve(
        self: Arc<Self>,
        socket: Socket,
        file: Option<SocketFile>,
        rooms: Arc<Semaphore>,
    ) {
        let mut stop = self.stop.clone();
        tokio::select! {
            () = self.accept(&socket, &rooms) => {}
            _ = stop.wait_for(|&stop| stop) => {}
        }
        drop((file, socket));
        // Wait until every connection has ended. (The semaphore is never closed.)
        let _ = rooms.acquire_many(CONNECTIONS_MAX as u32).await;
    }

    async fn accept(self: &Arc<Self>, socket: &Socket, rooms: &Arc<Semaphore>) {
        let mut guests = VecDeque::new();
        loop {
            let accepted = match socket {
                Socket::Unix(listener) => listener.accept().await.map(|(s, _)| Stream::Unix(s)),
                Socket::Tcp(listener) => listener.accept().await.map(|(s, _)| Stream::Tcp(s)),
            };
            let Ok(stream) = accepted else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let Some(room) = room(rooms, &mut guests).await else { return };
            let guest = Arc::new(Guest::new());
            guests.push_back(guest.clone());
            match stream {
                Stream::Unix(stream) => {
                    tokio::spawn(self.clone().converse(stream, guest, room));
                }
                Stream::Tcp(stream) => {
                    tokio::spawn(self.clone().converse(stream, guest, room));
                }
            }
        }
    }

    /// Serves one client: one request, one answer.
    async fn converse<S>(self: Arc<Self>, stream: S, guest: Arc<Guest>, room: OwnedSemaphorePermit)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let answered = Arc::new(Notify::new());
        let room = Arc::new(room);
        let service = service_fn(|request| {
            let (server, guest, answered) = (self.clone(), guest.clone(), answered.clone());
            let room = room.clone();
            async move {
                let answer = server.answer(request, &guest, room).await;
                answered.notify_one();
                Ok::<_, Infallible>(respond(answer))
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(READ_TIME_MAX)
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(HEADERS_MAX)
            .keep_alive(false)
            .half_close(true)
            .serve_connection(TokioIo::new(stream), service);
        let cut_off = async {
            answered.notified().await;
            tokio::time::sleep(ANSWER_TIME_MAX).await;
        };
        let mut stop = self.stop.clone();
        let stopped = async {
            let _ = stop.wait_for(|&stop| stop).await;
            if guest.has_asked() {
                std::future::pending().await
            }
        };
        let made_room = async {
            guest.makes_room.notified().await;
            if guest.has_asked() {
                std::future::pending().await
            }
        };
        // It does not matter how a connection ends.
        tokio::select! {
            _ = connection => {}
            () = cut_off => {}
            () = stopped => {}
            () = made_room => {}
        }
        guest.asked.store(true, Ordering::Relaxed);
    }

    /// Answers a request. The connection keeps its `room` until the answer is known, even if the
    /// client disconnects before.
    async fn answer(
        &self,
        request: Request<Incoming>,
        guest: &Guest,
        room: Arc<OwnedSemaphorePermit>,
    ) -> Answer {
        let (head, body) = request.into_parts();
        if let Err((code, message)) = self.access.check(&head.uri, &head.headers) {
            return Answer::error(code, message);
        }
        if let Err(refused) = pass_over(body).await {
            return refused;
        }
        guest.asked.store(true, Ordering::Relaxed);
        let order = match head.method {
            Method::GET => false,
            Method::POST => true,
            _ => return Answer::error(405, "this server accepts only GET and POST"),
        };
        let path = head.uri.path().to_owned();
        // An order to stop does not count towards the limit.
        let permit = match order && path != "/stop" {
            true => self.orders.clone().try_acquire_owned().map(Some),
            false => Ok(None),
        };
        let Ok(permit) = permit else {
            return Answer::error(503, "too many commands are in progress; try again later");
        };
        let query = head.uri.query().unwrap_or_default().to_owned();
        let (question, answerer) = (Question { order, path, query }, self.answerer.clone());
        let (sender, answer) = oneshot::channel();
        let thread = std::thread::Builder::new().name("forebay-control-job".to_owned());
        // (Tokio's pool for blocking work would panic if no thread can be started.)
        let thread = thread.spawn(move || {
            let _permits = (permit, room);
            // The client may have disconnected.
            let _ = sender.send(answerer(&question));
        });
        if thread.is_err() {
            return Answer::error(503, "the server cannot start a thread; try again later");
        }
        answer
            .await
            .unwrap_or_else(|_| Answer::error(500, "the server could not build the response"))
    }
}

/// Rejects a request that has a body.
async fn pass_over(body: Incoming) -> Result<(), Answer> {
    let too_large =
        || Answer::error(413, "the request's body is too large; no request needs a body");
    let needless = || {
        Answer::error(
            400,
            "commands take their parameters in the query string (/set?KEY=VALUE), not in a body",
        )
    };
    match body.size_hint().lower() {
        0 => {}
        1..=BODY_BYTES_MAX => return Err(needless()),
        _ => return Err(too_large()),
    }
    let mut body = Limited::new(body, BODY_BYTES_MAX as usize);
    let read = async {
        let mut bytes = 0;
        while let Some(part) = body.frame().await {
            bytes += part?.data_ref().map_or(0, Bytes::len);
        }
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(bytes)
    };
    match within(READ_TIME_MAX, read).await {
        Some(Ok(0)) => Ok(()),
        Some(Ok(_)) => Err(needless()),
        Some(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Some(Err(_)) => Err(Answer::error(400, "the body of the request cannot be read")),
        None => Err(Answer::error(408, "the body of the request did not arrive in time")),
    }
}

async fn within<T>(time: Duration, what: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(time, what).await.ok()
}

fn respond(answer: Answer) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(answer.body)));
    let code = StatusCode::from_u16(answer.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(answer.kind));
    if code == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, hyper::header::HeaderValue::from_static("Bearer"));
    }
    response
}
