//! Unix sockets and TLS: the same server, other streams. A client that makes no handshake must not delay others.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::common::TestServer;
use bristlecone::Options;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use server::{Config, Listeners};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};

/// A certificate authority, a certificate of it for `localhost`, and one for clients, as PEM files.
struct Files {
    dir: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let write = |name: &str, text: String| std::fs::write(dir.path().join(name), text).unwrap();
        write("ca.pem", authority.pem());
        for name in ["localhost", "client"] {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
            write(&format!("{name}.pem"), params.signed_by(&key, &authority).unwrap().pem());
            write(&format!("{name}.key"), key.serialize_pem());
        }
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Settings of a client that trusts the authority, with a certificate of it if `has_certificate`.
    fn client(&self, version: &'static SupportedProtocolVersion, has_certificate: bool) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.path("ca.pem")).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots);
        Arc::new(if has_certificate {
            let chain = vec![CertificateDer::from_pem_file(self.path("client.pem")).unwrap()];
            let key = PrivateKeyDer::from_pem_file(self.path("client.key")).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        } else {
            builder.with_no_client_auth()
        })
    }
}

/// Starts a server with a TLS socket.
fn start(files: &Files, config: Config, client_ca: bool) -> (TestServer, SocketAddr) {
    let mut address = None;
    let server = TestServer::beside(Options::default(), config, || {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        address = Some(socket.local_addr().unwrap());
        let ca = files.path("ca.pem");
        let acceptor = server::tls::acceptor(
            &files.path("localhost.pem"),
            &files.path("localhost.key"),
            client_ca.then_some(ca.as_path()),
        );
        let listener = tokio::net::TcpListener::from_std(socket).unwrap();
        Listeners { tls: Some((listener, acceptor.unwrap())), ..Listeners::default() }
    });
    (server, address.unwrap())
}

/// Sends a request over TLS and reads until the end.
fn exchange(address: SocketAddr, config: Arc<ClientConfig>, request: &[u8]) -> std::io::Result<String> {
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(config, name).map_err(std::io::Error::other)?;
    let socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(Duration::from_secs(20)))?;
    let mut stream = StreamOwned::new(connection, socket);
    stream.write_all(request)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn both_versions_of_tls_carry_commands_and_large_replies() {
    let files = Files::new();
    let (server, address) = start(&files, Config::default(), false);
    for version in [&TLS12, &TLS13] {
        let answer = exchange(address, files.client(version, false), b"SET k v\r\nGET k\r\nQUIT\r\n");
        assert_eq!(answer.unwrap(), "+OK\r\n$1\r\nv\r\n+OK\r\n", "{version:?}");
    }
    let large = "v".repeat(5 << 20);
    server.store.put(b"large", large.as_bytes()).unwrap();
    let answer = exchange(address, files.client(&TLS13, false), b"GET large\r\nPING\r\nQUIT\r\n").unwrap();
    assert!(answer == format!("$5242880\r\n{large}\r\n+PONG\r\n+OK\r\n"));
}

#[test]
fn plain_bytes_and_unknown_authorities_are_refused_over_tls() {
    let files = Files::new();
    let (server, address) = start(&files, Config::default(), false);
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(b"SET stolen 1\r\nSET stolen 1\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"+"), "{answer:?}");
    // A client that trusts another authority does not send its command.
    let other = Files::new();
    assert!(exchange(address, other.client(&TLS13, false), b"SET stolen 1\r\nQUIT\r\n").is_err());
    assert_eq!(server.store.get(b"stolen").unwrap(), None);
}

#[test]
fn with_a_client_authority_only_its_certificates_are_admitted() {
    let files = Files::new();
    let (server, address) = start(&files, Config::default(), true);
    for version in [&TLS12, &TLS13] {
        assert!(exchange(address, files.client(version, false), b"SET k 1\r\nQUIT\r\n").is_err());
        let other = Files::new();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(files.path("ca.pem")).unwrap()).unwrap();
        let chain = vec![CertificateDer::from_pem_file(other.path("client.pem")).unwrap()];
        let key = PrivateKeyDer::from_pem_file(other.path("client.key")).unwrap();
        let foreign = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .unwrap();
        assert!(exchange(address, Arc::new(foreign), b"SET k 1\r\nQUIT\r\n").is_err());
        assert_eq!(server.store.get(b"k").unwrap(), None);
        let answer = exchange(address, files.client(version, true), b"PING\r\nQUIT\r\n").unwrap();
        assert_eq!(answer, "+PONG\r\n+OK\r\n");
    }
}

#[test]
fn clients_without_a_handshake_delay_no_other_client_and_are_closed() {
    let files = Files::new();
    let config = Config { handshake_timeout: Duration::from_millis(500), ..Config::default() };
    let (server, address) = start(&files, config, false);
    let mut silent: Vec<_> = (0..50).map(|_| TcpStream::connect(address).unwrap()).collect();
    // The first byte of a handshake, and no more.
    silent[0].write_all(&[22]).unwrap();
    let answer = exchange(address, files.client(&TLS13, false), b"PING\r\nQUIT\r\n").unwrap();
    assert_eq!(answer, "+PONG\r\n+OK\r\n");
    for socket in &mut silent {
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(socket.read(&mut [0; 100]).unwrap(), 0);
    }
    let info: String = redis::cmd("INFO").arg("stats").query(&mut server.client()).unwrap();
    assert!(info.contains("rejected_connections:50\r\n"), "{info}");
}

#[test]
fn wrong_files_are_errors_that_name_them() {
    let files = Files::new();
    let path = |name: &str| files.path(name);
    let error =
        |certificate: &Path, key: &Path, ca: Option<&Path>| match server::tls::acceptor(certificate, key, ca)
        {
            Ok(_) => panic!("accepted"),
            Err(error) => error.to_string(),
        };
    let (certificate, key) = (path("localhost.pem"), path("localhost.key"));
    assert!(error(&path("absent.pem"), &key, None).contains("absent.pem"));
    assert!(error(&key, &key, None).contains("localhost.key"));
    assert!(error(&certificate, &certificate, None).contains("cannot read a private key"));
    assert!(error(&certificate, &path("client.key"), None).contains("cannot use the certificate"));
    assert!(error(&certificate, &key, Some(&key)).contains("localhost.key"));
}

#[test]
fn a_unix_socket_serves_without_a_password_and_is_listed_by_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let server = TestServer::beside(Options::default(), Config::default(), || Listeners {
        unix: Some(tokio::net::UnixListener::bind(&path).unwrap()),
        ..Listeners::default()
    });
    let mut socket = UnixStream::connect(&path).unwrap();
    socket.write_all(b"SET k v\r\nCLIENT LIST\r\nQUIT\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("+OK\r\n"), "{answer}");
    let shown = path.display();
    assert!(answer.contains(&format!("addr={shown}:0 laddr={shown}")), "{answer}");
    assert_eq!(server.store.get(b"k").unwrap(), Some(b"v".to_vec()));
}
