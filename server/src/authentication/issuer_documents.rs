//! Fetches the documents of token issuers over HTTPS.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::ACCEPT;
use http::{Request, Uri};
use http_body_util::{BodyExt, Limited};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tributary_apimachinery::explain;
use tributary_authentication::FetchDocument;

/// The size limit of a document, in bytes. A key set of 64 RSA keys of 4,096 bits takes 60 KB.
const DOCUMENT_MAX: usize = 1 << 20;
/// The time limit for connecting. The caller limits the time of the whole request.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The accepted content types. kube-apiserver has its key set only as `application/jwk-set+json`, and answers 406
/// otherwise.
const ACCEPTED: &str = "application/jwk-set+json, application/json";

/// Fetches documents over new connections, because each document is fetched only once in several minutes.
#[derive(Debug)]
pub struct IssuerDocuments;

impl FetchDocument for IssuerDocuments {
    fn fetch(&self, url: &str, certificate_authority: Option<&str>) -> BoxFuture<'static, Result<Vec<u8>, String>> {
        fetch(url.to_owned(), certificate_authority.map(str::to_owned)).boxed()
    }
}

async fn fetch(url: String, certificate_authority: Option<String>) -> Result<Vec<u8>, String> {
    let unreachable = |problem: String| format!("{url}: {problem}");
    let target: Uri = url.parse().map_err(|_| unreachable("the value is not a URL".to_owned()))?;
    if target.scheme_str() != Some("https") {
        return Err(unreachable("the URL is not https".to_owned()));
    }
    let roots = match certificate_authority {
        Some(pem) => {
            let certificates = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
            let certificates = certificates.map_err(|_| unreachable("certificateAuthority is not PEM".to_owned()))?;
            Some(certificates.iter().map(|certificate| certificate.to_vec()).collect())
        }
        // The system's authorities are set explicitly. On a system without authorities, kube would use Mozilla's list.
        None => tokio::task::spawn_blocking(tributary_proxy::system_roots).await.map_err(|error| error.to_string())?,
    };
    let client = client(&target, roots).map_err(unreachable)?;
    let path = target.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::get(path).header(ACCEPT, ACCEPTED).body(kube::client::Body::empty());
    let answer = client.send(request.map_err(|error| unreachable(error.to_string()))?).await;
    let answer = answer.map_err(|error| unreachable(explain(&error)))?;
    if answer.status() != http::StatusCode::OK {
        return Err(unreachable(format!("the server answered {}", answer.status())));
    }
    let text = Limited::new(answer.into_body(), DOCUMENT_MAX).collect().await;
    Ok(text.map_err(|error| unreachable(error.to_string()))?.to_bytes().to_vec())
}

/// Creates a client for one server, without credentials. kube prefixes each request's path with the path of the
/// server's URL, so the URL in the configuration has no path.
fn client(target: &Uri, roots: Option<Vec<Vec<u8>>>) -> Result<kube::Client, String> {
    let authority = target.authority().ok_or("the URL has no host")?.clone();
    let server = Uri::builder().scheme("https").authority(authority).path_and_query("/").build();
    let mut config = kube::Config::new(server.map_err(|error| error.to_string())?);
    config.root_cert = roots;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.default_retry = false;
    kube::Client::try_from(config).map_err(|error| explain(&error))
}
