//! A server for tests. It runs in the process of the test on a free port of the loopback interface. It stops when it is dropped.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bristlecone::{Options, Store};
use tokio::sync::oneshot;

// Each test program uses a part of this.
#[allow(dead_code)]
pub struct TestServer {
    pub address: SocketAddr,
    pub store: Store,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<server::Result<()>>>,
    dir: Arc<tempfile::TempDir>,
}

#[allow(dead_code)]
impl TestServer {
    pub fn start() -> Self {
        Self::with(server::Config::default())
    }

    pub fn with(config: server::Config) -> Self {
        Self::over(Options::default(), config)
    }

    /// Starts a server over a new store with these options.
    pub fn over(options: Options, config: server::Config) -> Self {
        Self::beside(options, config, server::Listeners::default)
    }

    /// Starts a server that also listens on other sockets, which `more` makes inside the runtime.
    pub fn beside(
        options: Options,
        config: server::Config,
        more: impl FnOnce() -> server::Listeners,
    ) -> Self {
        Self::inside(Arc::new(tempfile::tempdir().unwrap()), options, config, more)
    }

    /// Stops this server, closes its store, and starts another server over it.
    pub fn again(
        mut self,
        options: Options,
        config: server::Config,
        more: impl FnOnce() -> server::Listeners,
    ) -> Self {
        self.stop();
        self.store.close().unwrap();
        let dir = Arc::clone(&self.dir);
        // The store is open until its last handle is dropped.
        drop(self);
        Self::inside(dir, options, config, more)
    }

    fn inside(
        dir: Arc<tempfile::TempDir>,
        options: Options,
        config: server::Config,
        more: impl FnOnce() -> server::Listeners,
    ) -> Self {
        let store = Store::open(dir.path().join("store"), options).unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let inside = runtime.enter();
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        // The default backlog is too small for a test that connects thousands of clients.
        let listener = socket.listen(4096).unwrap();
        let address = listener.local_addr().unwrap();
        let listeners = server::Listeners { tcp: Some(listener), ..more() };
        drop(inside);
        let (stop, stopped) = oneshot::channel::<()>();
        let served = store.clone();
        let thread = std::thread::spawn(move || {
            runtime.block_on(server::serve(served, listeners, config, async {
                let _ = stopped.await;
            }))
        });
        Self { address, store, stop: Some(stop), thread: Some(thread), dir }
    }

    /// A client connection with RESP2.
    pub fn client(&self) -> redis::Connection {
        self.client_of("")
    }

    /// A client connection with RESP3.
    pub fn client3(&self) -> redis::Connection {
        self.client_of("?protocol=resp3")
    }

    fn client_of(&self, query: &str) -> redis::Connection {
        let client = redis::Client::open(format!("redis://{}/{query}", self.address)).unwrap();
        client.get_connection_with_timeout(Duration::from_secs(5)).unwrap()
    }

    /// A plain TCP connection. A read fails after 20 seconds.
    pub fn socket(&self) -> TcpStream {
        let socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket
    }

    /// Sends bytes on a new connection. Returns everything that the server sends until it closes the connection.
    pub fn exchange(&self, request: &[u8]) -> String {
        let mut socket = self.socket();
        // The server may have closed already. Its reply still counts.
        let _ = socket.write_all(request);
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Asks the server to stop and waits for its end.
    pub fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        self.join();
    }

    /// Waits until the server has stopped by itself.
    pub fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap().unwrap();
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop();
        }
    }
}

/// Repeats `check` until it is true. Fails after a time that only a server that hangs needs.
pub fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !check() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
