//! TLS settings: certificate, key, and certificate authority of clients, from PEM files. The server uses TLS 1.2 and 1.3 with the
//! cryptography of `ring`.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig, version};

/// The reason why TLS cannot be used with these files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or it has no certificate or key.
    #[error("cannot read {what} in {path}: {why}")]
    File {
        /// The kind of object.
        what: &'static str,
        /// The file.
        path: String,
        /// The reason.
        why: String,
    },
    /// The certificate authority of clients cannot be used.
    #[error("cannot use the certificate authority in {0}: {1}")]
    Authority(String, String),
    /// Certificate and key do not belong together, or have an unknown form.
    #[error("cannot use the certificate and its key: {0}")]
    Pair(#[from] rustls::Error),
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let fail = |why: String| TlsError::File { what: "a certificate", path: path.display().to_string(), why };
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match found {
        Ok(found) if found.is_empty() => Err(fail("the file has none".to_owned())),
        Ok(found) => Ok(found),
        Err(error) => Err(fail(error.to_string())),
    }
}

/// Reads the files of a server. With `client_ca`, clients must have a certificate of this authority.
///
/// # Errors
/// A file cannot be read or used.
pub fn acceptor(certificate: &Path, key: &Path, client_ca: Option<&Path>) -> Result<TlsAcceptor, TlsError> {
    let chain = certificates(certificate)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| TlsError::File {
        what: "a private key",
        path: key.display().to_string(),
        why: error.to_string(),
    })?;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&version::TLS13, &version::TLS12])?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let fail = |why: String| TlsError::Authority(path.display().to_string(), why);
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| fail(error.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| fail(error.to_string()))?)
        }
    };
    Ok(TlsAcceptor::from(Arc::new(builder.with_single_cert(chain, key)?)))
}
