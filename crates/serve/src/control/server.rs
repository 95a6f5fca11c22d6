//! Answers requests of operators.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;

use forebay_config::{Acknowledge, WritePolicy};
use forebay_engine::{Engine, EngineError, Recovering, Resumed, Status, StopMode};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use tokio::sync::watch;

use super::access::Access;
use super::http::{self, Answer, Question};
use super::metrics::metrics;
use super::order::{self, StopOrder};
use super::stop::{Ended, StopRequest};
use super::token::Token;
use crate::error::ServeError;
use crate::listener::Listener;
use crate::nbd::{NbdStatus, NbdView};
use crate::record::{RecordingStatus, RecordingView};
use crate::server::Explain;

/// The server behind the control address.
pub(crate) struct ControlServer {
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
    address: String,
}

/// What operators can see in addition to the engine.
#[derive(Clone, Debug)]
pub(crate) struct Views {
    /// The NBD connections.
    pub nbd: NbdView,
    /// The recording, if there is one.
    pub recording: Option<RecordingView>,
    /// Turns an engine's error into a message for operators.
    pub explain: Explain,
}

struct Shared {
    state: Mutex<State>,
    /// Signalled at each change of state, for threads that wait for the end of a stop.
    changed: Condvar,
    stop: Arc<StopRequest>,
}

/// The state of the server, which decides how requests are answered.
#[derive(Clone)]
enum State {
    /// The engine is being opened.
    Starting(Recovering),
    Serving {
        /// Weak, so that a client that hangs does not keep the engine from stopping.
        engine: Weak<Engine>,
        views: Views,
    },
    /// Clients are being disconnected, and the cache is being closed.
    Stopping,
    /// The devices are released. The result says what was done with dirty data, or what failed.
    Stopped(Result<Ended, String>),
}

/// What `GET /status` answers before clients are welcome.
#[derive(Serialize, JsonSchema)]
struct StartStatus {
    /// `recovering`.
    state: &'static str,
    /// Progress of the recovery.
    recovering: Recovering,
    /// Version of Forebay.
    version: &'static str,
    /// Process ID of the server.
    pid: u32,
}

/// What `GET /status` answers at the end.
#[derive(Serialize, JsonSchema)]
struct StopStatus {
    /// `stopping`.
    state: &'static str,
    /// What this stop does with dirty data: `keep`, `destage` or `release`; null if the server ends before its
    /// cache is ready.
    dirty: Option<&'static str>,
    /// Version of Forebay.
    version: &'static str,
    /// Process ID of the server.
    pid: u32,
}

/// What `GET /status` answers while clients are served.
#[derive(Serialize, JsonSchema)]
pub(super) struct ServerStatus {
    /// `serving`.
    pub state: &'static str,
    #[serde(flatten)]
    pub cache: Status,
    /// Connections of NBD clients.
    pub nbd: NbdStatus,
    /// The recording of a trace; null if there is none.
    pub recording: Option<RecordingStatus>,
    /// Version of Forebay.
    pub version: &'static str,
    /// Process ID of the server.
    pid: u32,
}

/// The schemas of the answers to `GET /status`: while clients are served, during the start, and
/// during a stop.
pub fn status_schemas(generator: &mut SchemaGenerator) -> [Schema; 3] {
    [
        generator.subschema_for::<ServerStatus>(),
        generator.subschema_for::<StartStatus>(),
        generator.subschema_for::<StopStatus>(),
    ]
}

impl ControlServer {
    /// Starts to answer on `listener`, at first that the engine is being opened. Over TCP, clients
    /// must have the token in `token_file`, which is created if it does not exist.
    ///
    /// # Errors
    /// If there is no valid token, or the system refuses a thread.
    pub fn start(
        listener: Listener,
        token_file: &Path,
        stop: Arc<StopRequest>,
    ) -> Result<ControlServer, ServeError> {
        let address = listener.address();
        let system = |e: std::io::Error| ServeError::System("serve the control address", e);
        let access = match &listener {
            Listener::Unix(..) => Access::Socket,
            Listener::Tcp(listener) => {
                let bound = listener.local_addr().map_err(system)?;
                Access::Token { token: Token::read_or_create(token_file)?, bound }
            }
        };
        let state = Mutex::new(State::Starting(Recovering::default()));
        let shared = Arc::new(Shared { state, changed: Condvar::new(), stop });
        let (stop, stopped) = watch::channel(false);
        let of_thread = shared.clone();
        let answer = Arc::new(move |asked: &Question| of_thread.answer(asked));
        let work = http::run(listener, access, answer, stopped)?;
        let thread = std::thread::Builder::new().name("forebay-control".into());
        let thread = thread.spawn(work).map_err(system)?;
        Ok(ControlServer { shared, stop, thread: Some(thread), address })
    }

    /// Sets the progress of opening the engine.
    pub fn starting(&self, recovering: Recovering) {
        self.shared.set(State::Starting(recovering));
    }

    /// Answers all requests from now on, because the engine is open.
    pub fn serve(&self, engine: &Arc<Engine>, views: Views) {
        self.shared.set(State::Serving { engine: Arc::downgrade(engine), views });
    }

    /// From now on, answers only that the server is stopping, except for orders to stop.
    pub fn stopping(&self) {
        self.shared.set(State::Stopping);
    }

    /// Notes that the devices are released. `result` says what was done with dirty data, or what
    /// failed.
    pub fn stopped(&self, result: Result<Ended, String>) {
        self.shared.set(State::Stopped(result));
    }

    /// The address that it listens on.
    pub fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.shared.end();
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has already reported it.
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
    fn set(&self, state: State) {
        *self.state() = state;
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers those who wait for a stop. If no stop has ended, the server ended during its start.
    fn end(&self) {
        let mut state = self.state();
        if !matches!(*state, State::Stopped(_)) {
            *state = State::Stopped(Ok(Ended::InStart));
        }
        drop(state);
        self.changed.notify_all();
    }

    fn answer(&self, asked: &Question) -> Answer {
        if (asked.path.as_str(), asked.order) == ("/stop", true) {
            // A thread that waits for the end must not hold a reference to the engine.
            return self.stop(asked);
        }
        let state = self.state().clone();
        match state {
            State::Stopping | State::Stopped(_) => self.answer_stopping(asked),
            State::Starting(recovering) => self.answer_starting(asked, recovering),
            State::Serving { engine, views } => match engine.upgrade() {
                Some(engine) => self.answer_serving(asked, &engine, &views),
                None => Answer::error(503, "the server is stopping"),
            },
        }
    }

    /// Answers while there is no engine yet.
    fn answer_starting(&self, asked: &Question, recovering: Recovering) -> Answer {
        match (asked.path.as_str(), asked.order) {
            ("/status", false) => Answer::json(
                200,
                json(&StartStatus {
                    state: "recovering",
                    recovering,
                    version: env!("CARGO_PKG_VERSION"),
                    pid: std::process::id(),
                }),
            ),
            _ => Answer::error(503, &format!("the cache is not ready yet: {recovering}")),
        }
    }

    /// Answers when there is no engine any more.
    fn answer_stopping(&self, asked: &Question) -> Answer {
        match (asked.path.as_str(), asked.order) {
            ("/status", false) => Answer::json(
                200,
                json(&StopStatus {
                    state: "stopping",
                    dirty: self.stop.begun().map(|mode| match mode {
                        StopMode::Keep => "keep",
                        StopMode::Destage => "destage",
                        StopMode::Release => "release",
                    }),
                    version: env!("CARGO_PKG_VERSION"),
                    pid: std::process::id(),
                }),
            ),
            _ => Answer::error(503, "the server is stopping"),
        }
    }

    fn stop(&self, asked: &Question) -> Answer {
        let StopOrder { dirty: named, waits } = match order::stop(&asked.query) {
            Ok(order) => order,
            Err(refused) => return refused,
        };
        if let Err(begun) = self.stop.ask(named) {
            return Answer::error(409, begun);
        }
        if waits {
            return self.wait_for_stop(named);
        }
        Answer::json(202, json(&serde_json::json!({ "stopping": true })))
    }

    /// Waits until the server has stopped. The answer is an error if the stop did less than
    /// `named`, or than the default where it is `None`.
    fn wait_for_stop(&self, named: Option<StopMode>) -> Answer {
        let wanted = named.unwrap_or_else(|| self.stop.usual());
        let mut state = self.state();
        loop {
            match &*state {
                State::Stopped(Ok(ended)) => {
                    if let Some(lacking) = ended.lacks(wanted, named.is_some()) {
                        let error = format!("the server has stopped, but {lacking}");
                        return Answer::error(500, &error);
                    }
                    let dirty_blocks = ended.dirty_blocks();
                    let left = serde_json::json!({ "stopped": true, "dirty_blocks": dirty_blocks });
                    return Answer::json(200, json(&left));
                }
                State::Stopped(Err(error)) => {
                    return Answer::error(500, &format!("the server has stopped, but {error}"));
                }
                _ => {}
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn answer_serving(&self, asked: &Question, engine: &Engine, views: &Views) -> Answer {
        let (get, post) = (!asked.order, asked.order);
        match asked.path.as_str() {
            "/status" if get && asked.query == "answered" => {
                Answer::json(200, json(&with_answered(&status(engine, views))))
            }
            "/status" if get => Answer::json(200, json(&status(engine, views))),
            "/metrics" if get => {
                let body = metrics(&status(engine, views));
                Answer { code: 200, body, kind: "text/plain; version=0.0.4" }
            }
            "/destage" if post => done(engine.destage(|_| {}), engine, views),
            "/quiesce" if post => with(order::quiesce(&asked.query), |limit| {
                done(engine.quiesce(limit, |_| {}), engine, views)
            }),
            "/resume" if post => {
                engine.retry_stores();
                resume(engine, views)
            }
            "/set" if post => with(order::set(&asked.query), |(policy, acknowledge)| {
                set_policy((policy, acknowledge), engine, views)
            }),
            "/resize" if post => {
                with(order::resize(&asked.query), |bytes| resize(bytes, engine, views))
            }
            "/invalidate" if post => {
                with(order::invalidate(&asked.query), |name| invalidate(&name, engine, views))
            }
            "/status" | "/metrics" | "/destage" | "/quiesce" | "/resume" | "/stop" | "/set"
            | "/resize" | "/invalidate" => Answer::error(
                405,
                "wrong HTTP method for this path: use POST instead of GET, or GET instead of POST",
            ),
            "/attach" | "/detach" => Answer::error(
                501,
                "volumes cannot be added or removed while the server runs: stop the server, edit \
                 the configuration and start it again",
            ),
            _ => Answer::error(404, "unknown path; try /status or /metrics"),
        }
    }
}

fn status(engine: &Engine, views: &Views) -> ServerStatus {
    ServerStatus {
        state: "serving",
        cache: engine.status(),
        nbd: views.nbd.status(),
        recording: views.recording.as_ref().map(RecordingView::status),
        version: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
    }
}

/// The status, with the latencies of all requests of each volume answered so far (`answered`).
fn with_answered(status: &ServerStatus) -> serde_json::Value {
    let mut value = serde_json::to_value(status).unwrap_or_default();
    let volumes = value["volumes"].as_array_mut().into_iter().flatten();
    for (object, volume) in volumes.zip(&status.cache.volumes) {
        object["answered"] =
            serde_json::to_value(&volume.workload.answered.all).unwrap_or_default();
    }
    value
}

/// Carries out an order if it is valid.
fn with<T>(asked: Result<T, Answer>, carry_out: impl FnOnce(T) -> Answer) -> Answer {
    asked.map_or_else(|refused| refused, carry_out)
}

/// Lets clients continue, and answers whether there was a quiesce to end.
fn resume(engine: &Engine, views: &Views) -> Answer {
    let resumed = match engine.resume() {
        Ok(resumed) => resumed,
        Err(error) => return done(Err(error), engine, views),
    };
    let answer = serde_json::json!({
        "dirty_blocks": engine.status().total.dirty_blocks,
        "ended": resumed == Resumed::Ended,
    });
    Answer::json(200, json(&answer))
}

/// Changes the write policy, and answers with the policy in force.
fn set_policy(
    (policy, acknowledge): (WritePolicy, Option<Acknowledge>),
    engine: &Engine,
    views: &Views,
) -> Answer {
    if let Err(error) = engine.set_policy(policy, acknowledge) {
        return done(Err(error), engine, views);
    }
    let status = engine.status();
    let answer = serde_json::json!({
        "dirty_blocks": status.total.dirty_blocks,
        "write_policy": status.write_policy,
        "acknowledge": status.acknowledge,
    });
    Answer::json(200, json(&answer))
}

/// Changes the memory for blocks, and answers with its size, which is a whole number of blocks.
fn resize(bytes: u64, engine: &Engine, views: &Views) -> Answer {
    if let Err(error) = engine.set_dram_bytes(bytes) {
        return done(Err(error), engine, views);
    }
    let status = engine.status();
    let answer = serde_json::json!({
        "dirty_blocks": status.total.dirty_blocks,
        "dram_bytes": u64::from(status.tiers.dram_blocks) * u64::from(engine.block_bytes()),
    });
    Answer::json(200, json(&answer))
}

/// Drops the cached blocks of a volume.
fn invalidate(name: &str, engine: &Engine, views: &Views) -> Answer {
    match engine.volumes().iter().find(|v| v.name == name) {
        Some(found) => done(engine.invalidate(&[found.volume]), engine, views),
        None => Answer::error(404, &format!("there is no volume `{name}`")),
    }
}

fn done(result: Result<(), EngineError>, engine: &Engine, views: &Views) -> Answer {
    match result {
        Ok(()) => {
            let dirty_blocks = engine.status().total.dirty_blocks;
            Answer::json(200, json(&serde_json::json!({ "dirty_blocks": dirty_blocks })))
        }
        Err(error) => Answer::error(500, &(views.explain)(&error)),
    }
}

fn json(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string(value).unwrap_or_else(|_| "{}".to_owned());
    text.push('\n');
    text
}
