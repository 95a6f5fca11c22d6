//! Answers operators.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use forebay_config::{Acknowledge, WritePolicy};
use forebay_engine::{Engine, Status, StopMode};
use serde::Serialize;
use tiny_http::{Header, Method, Request, Response, Server as HttpServer};

use super::metrics::metrics;
use crate::error::ServeError;
use crate::listener::{Listener, SocketFile};
use crate::nbd::NbdCounters;
use crate::signals::StopSignals;

/// A stop that was asked for over the control address.
#[derive(Debug)]
pub(crate) struct StopRequest {
    asked: AtomicU8,
    /// What is done unless it is said.
    usual: StopMode,
}

impl StopRequest {
    /// Nothing asked for yet.
    pub fn new(usual: StopMode) -> StopRequest {
        StopRequest { asked: AtomicU8::new(0), usual }
    }

    /// What was asked for last, if anything.
    pub fn get(&self) -> Option<StopMode> {
        match self.asked.load(Ordering::Acquire) {
            0 => None,
            1 => Some(StopMode::Destage),
            _ => Some(StopMode::Keep),
        }
    }

    fn set(&self, mode: StopMode) {
        self.asked.store(if mode == StopMode::Destage { 1 } else { 2 }, Ordering::Release);
        StopSignals::wake();
    }
}

/// The server behind the control address.
pub(crate) struct ControlServer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    address: String,
}

struct Shared {
    http: HttpServer,
    /// Weak, so that a client that hangs does not keep the engine from stopping.
    engine: Weak<Engine>,
    nbd: NbdCounters,
    stop: Arc<StopRequest>,
    // Removes the socket's file at the end.
    _file: Option<SocketFile>,
}

/// What `GET /status` answers.
#[derive(Serialize)]
struct ServerStatus {
    #[serde(flatten)]
    cache: Status,
    nbd: NbdStatus,
    version: &'static str,
    pid: u32,
}

#[derive(Serialize)]
struct NbdStatus {
    connections: u64,
    accepted: u64,
}

impl ControlServer {
    /// Answers on `listener`.
    ///
    /// # Errors
    /// If threads cannot be had.
    pub fn start(
        listener: Listener,
        engine: &Arc<Engine>,
        nbd: NbdCounters,
        stop: Arc<StopRequest>,
    ) -> Result<ControlServer, ServeError> {
        let address = listener.address();
        let system = |e: std::io::Error| ServeError::System("answer on the control address", e);
        let (listener, file) = listener.into_parts();
        let http = HttpServer::from_listener(listener, None)
            .map_err(|e| system(std::io::Error::other(e.to_string())))?;
        let shared =
            Arc::new(Shared { http, engine: Arc::downgrade(engine), nbd, stop, _file: file });
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new().name("forebay-control".into());
        let thread = thread.spawn(move || of_thread.work()).map_err(system)?;
        Ok(ControlServer { shared, thread: Some(thread), address })
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.shared.http.unblock();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for ControlServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControlServer").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Shared {
    fn work(self: Arc<Self>) {
        // `recv` fails once when unblocked, and that is the end.
        while let Ok(request) = self.http.recv() {
            if *request.method() == Method::Get {
                self.answer(request);
                continue;
            }
            // What may take long does not hold up the rest.
            let shared = self.clone();
            let name = std::thread::Builder::new().name("forebay-control-job".into());
            // Without a thread the request is dropped, which the client sees as an error.
            let _ = name.spawn(move || shared.answer(request));
        }
    }

    fn answer(&self, request: Request) {
        let (path, query) = match request.url().split_once('?') {
            Some((path, query)) => (path.to_owned(), query.to_owned()),
            None => (request.url().to_owned(), String::new()),
        };
        let Some(engine) = self.engine.upgrade() else {
            return respond(request, 503, error("the server is stopping"));
        };
        let post = *request.method() == Method::Post;
        let get = *request.method() == Method::Get;
        let (code, body) = match path.as_str() {
            "/status" if get => (200, json(&self.status(&engine))),
            "/metrics" if get => {
                let text = metrics(&engine.status(), self.nbd.connections());
                drop(engine);
                return respond_as(request, 200, text, "text/plain; version=0.0.4");
            }
            "/destage" if post => done(engine.destage(|_| {}), &engine),
            "/quiesce" if post => done(engine.quiesce(|_| {}), &engine),
            "/resume" if post => {
                engine.resume();
                done(Ok(()), &engine)
            }
            "/stop" if post => {
                let asked = |pair: &str| query.split('&').any(|given| given == pair);
                self.stop.set(match (asked("dirty=keep"), asked("dirty=destage")) {
                    (true, _) => StopMode::Keep,
                    (_, true) => StopMode::Destage,
                    _ => self.stop.usual,
                });
                (202, json(&serde_json::json!({ "stopping": true })))
            }
            "/set" if post => set(&engine, &query),
            "/resize" if post => resize(&engine, &query),
            "/status" | "/metrics" | "/destage" | "/quiesce" | "/resume" | "/stop" | "/set"
            | "/resize" => (405, error("this is asked with the other method, GET or POST")),
            "/attach" | "/detach" => (
                501,
                error(
                    "this version changes volumes only by a restart: stop the server, edit the \
                       configuration, start it again",
                ),
            ),
            _ => (404, error("there is nothing here; try /status or /metrics")),
        };
        drop(engine);
        respond(request, code, body);
    }

    fn status(&self, engine: &Engine) -> ServerStatus {
        ServerStatus {
            cache: engine.status(),
            nbd: NbdStatus { connections: self.nbd.connections(), accepted: self.nbd.accepted() },
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
        }
    }
}

/// Changes settings: `write_policy=NAME&acknowledge=flash|dram`.
fn set(engine: &Engine, query: &str) -> (u16, String) {
    let (mut policy, mut acknowledge) = (None, Acknowledge::Flash);
    for (key, value) in pairs(query) {
        let unknown = |what: &str| (400, error(&format!("there is no {what} `{value}`")));
        match key {
            "write_policy" => match value.parse::<WritePolicy>() {
                Ok(known) => policy = Some(known),
                Err(_) => return unknown("write policy"),
            },
            "acknowledge" => match value.parse() {
                Ok(known) => acknowledge = known,
                Err(_) => return unknown("acknowledgement"),
            },
            _ => {
                let what = "cannot be set while the server runs; write_policy can";
                return (400, error(&format!("`{key}` {what}")));
            }
        }
    }
    match policy {
        Some(policy) => done(engine.set_policy(policy, acknowledge), engine),
        None => (400, error("say which write_policy")),
    }
}

/// Changes the size of DRAM: `dram=BYTES`.
fn resize(engine: &Engine, query: &str) -> (u16, String) {
    match pairs(query).collect::<Vec<_>>()[..] {
        [("dram", bytes)] => match bytes.parse() {
            Ok(bytes) => done(engine.set_dram_bytes(bytes), engine),
            Err(_) => (400, error("the size of DRAM is a number of bytes")),
        },
        _ => (400, error("only `dram` can be resized while the server runs")),
    }
}

fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

fn done(result: Result<(), forebay_engine::EngineError>, engine: &Engine) -> (u16, String) {
    match result {
        Ok(()) => {
            let dirty_blocks = engine.status().total.dirty_blocks;
            (200, json(&serde_json::json!({ "dirty_blocks": dirty_blocks })))
        }
        Err(e) => (500, error(&e.to_string())),
    }
}

fn error(message: &str) -> String {
    json(&serde_json::json!({ "error": message }))
}

fn json(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string(value).unwrap_or_else(|_| "{}".to_owned());
    text.push('\n');
    text
}

fn respond(request: Request, code: u16, body: String) {
    respond_as(request, code, body, "application/json");
}

fn respond_as(request: Request, code: u16, body: String, kind: &str) {
    let mut response = Response::from_string(body).with_status_code(code);
    if let Ok(header) = Header::from_bytes("Content-Type", kind) {
        response.add_header(header);
    }
    // A client that has gone needs no answer.
    let _ = request.respond(response);
}
