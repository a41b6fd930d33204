//! Who answers a test's AWS calls? A real engine on a free loopback port, started for one test and ended with it.
//!
//! Every constructor returns once the engine answers, and fails the test when it cannot: an engine that is not
//! installed is a broken set-up, never a reason to skip.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::JoinHandle,
};

use tokio::net::TcpSocket;
use tokio::sync::oneshot;

/// An engine that runs until this is dropped.
pub struct Engine {
    endpoint: String,
    running: Running,
}

enum Running {
    /// `tests/engines/serve`, which ends the engine when its standard input closes: by our drop or by our death.
    Process(Child),
    /// A server on a thread and a runtime of its own, so that a test may pause its own time.
    Thread { stop: Option<oneshot::Sender<()>>, thread: Option<JoinHandle<()>> },
    /// Somebody else's; not ours to end.
    Given,
}

impl Engine {
    /// DynamoDB, SQS and EC2 by ministack: the second engine.
    pub fn ministack() -> Self {
        Self::served("ministack")
    }

    /// SQS and EC2 by moto. Never for DynamoDB: its conditional updates have two winners.
    pub fn moto() -> Self {
        Self::served("moto")
    }

    /// DynamoDB by dynoxide, in this process and in memory: the default engine.
    pub fn dynoxide_memory() -> Self {
        let database = dynoxide::Database::memory().expect("SQLite opens a database in memory");
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("loopback has a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("a bound listener has an address"));
        listener.set_nonblocking(true).expect("tokio takes a non-blocking listener");
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime for the embedded engine");
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a listening socket");
                tokio::select! {
                    () = dynoxide::server::serve_on(listener, database) => {}
                    _ = stopped => {}
                }
            });
            runtime.shutdown_background();
        });
        Self { endpoint, running: Running::Thread { stop: Some(stop), thread: Some(thread) } }
    }

    /// The DynamoDB at `RUNYARD_TEST_DYNAMODB`, for an engine that somebody runs themselves
    /// (`tests/engines/README.md`).
    #[expect(clippy::disallowed_methods, reason = "a test's own switch; the product never reads it")]
    pub fn given() -> Option<Self> {
        let endpoint = std::env::var("RUNYARD_TEST_DYNAMODB").ok().filter(|value| !value.is_empty())?;
        Some(Self { endpoint, running: Running::Given })
    }

    /// Where it answers, as `http://127.0.0.1:PORT`.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    fn served(name: &str) -> Self {
        let mut wrapper = Command::new(serve())
            .arg(name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("tests/engines/serve starts: is python3 on the PATH?");
        let mut endpoint = String::new();
        let stdout = wrapper.stdout.take().expect("the output is a pipe");
        BufReader::new(stdout).read_line(&mut endpoint).expect("the wrapper's first line is text");
        if endpoint.is_empty() {
            let status = wrapper.wait().expect("the wrapper can be waited for");
            panic!("{name} did not start ({status}): run tests/run, which installs it; its output is above");
        }
        Self { endpoint: endpoint.trim_end().to_owned(), running: Running::Process(wrapper) }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        match &mut self.running {
            Running::Process(wrapper) => {
                drop(wrapper.stdin.take());
                // Nothing to be done about a failure here; the kernel ends the child with its wrapper.
                wrapper.wait().ok();
            }
            Running::Thread { stop, thread } => {
                drop(stop.take());
                if let Some(thread) = thread.take() {
                    thread.join().ok();
                }
            }
            Running::Given => {}
        }
    }
}

/// An endpoint that refuses every call while its socket is kept: bound, so that nobody else gets the port, and not
/// listened on.
pub fn nobody() -> (String, TcpSocket) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(([127, 0, 0, 1], 0).into()).expect("loopback has a free port");
    let endpoint = format!("http://{}", socket.local_addr().expect("a bound socket has an address"));
    (endpoint, socket)
}

/// The wrapper, from whichever package of the workspace this is compiled into.
fn serve() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|above| above.join("tests/engines/serve"))
        .find(|path| path.is_file())
        .expect("tests/engines/serve stands in the checkout")
}
