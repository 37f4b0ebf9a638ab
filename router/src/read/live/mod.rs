//! Collections that cannot be held in memory (metrics, or what is not registered): asked of every cluster now, and joined.
//!
//! A page holds whole answers of clusters, one after the other by name, as many as fit; its token names the cluster at which the
//! next one goes on, with that member's own token. So each cluster's objects are one snapshot of that cluster, and nothing has
//! to be kept here.

mod answer;
mod ask;
mod token;

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{StreamExt, stream};
use http::{HeaderValue, Response, StatusCode, header};
use tokio::time::{Duration, Instant};
use tributary_apimachinery::{ClusterName, ClusterSelector, ListOptions, Status};
use tributary_merge::{CompositeResourceVersion, Epochs};

use super::{Asked, warn_left_out};
use crate::Router;
use crate::body::Body;
use crate::discovery::ServedResource;
use crate::negotiate::{Answer, Shape};
use crate::response;
use crate::topology::Cluster;
use crate::view::{KNOWN_WITHIN, Partial, Standing, standing};
use answer::{Metadata, Wish};
use ask::{Answered, Question};
use token::Token;

/// How long a cluster may take to give its list where the rest is answered without it.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// How many clusters are asked at once. A page needs the first ones in order; asking all of a large fleet for a page that ten
/// of them fill would be waste.
const AT_ONCE: usize = 32;

/// Answers a list by asking each cluster now.
///
/// # Errors
/// 429 naming a cluster that does not answer, where a partial answer is denied; what a member says of the request itself (400,
/// 422); what all members say (403); 406; 410 for a token of a page that is not known any more.
pub async fn list(router: &Router, asked: Asked<'_>, served: &ServedResource) -> Result<Response<Body>, Status> {
    let form = asked.preferences.form(Answer::List)?;
    let options = ListOptions::parse(asked.query)?;
    let policy = router.policy(&served.resource);
    let partial = policy.partial;
    let (labels, selected) = ClusterSelector::split(&options.label_selector)?;
    let wanted = |cluster: &ClusterName| selected.matches(cluster) && policy.selects(cluster);
    let question = Question::new(asked, matches!(form.shape, Shape::Table(_)), &labels.to_string(), options.limit);
    let token = options.continue_token.as_deref().map(Token::decode).transpose()?;
    let clusters = served.clusters.iter().filter(|name| wanted(name));
    let clusters: Vec<_> = clusters.filter_map(|name| router.fleet().cluster(name)).collect();
    let mut gathered = Gathered::new(token.as_ref(), &router.epochs())?;
    gathered.ask(&clusters, &question, token, options.limit, partial).await?;
    let mut standings = std::mem::take(&mut gathered.standings);
    let silent = served.silent().filter_map(|cluster| router.fleet().cluster(cluster));
    standings.extend(router.fleet().undiscovered().into_iter().chain(silent).map(|cluster| {
        let standing = Standing::of_undiscovered(&cluster, &served.resource);
        (cluster.name().clone(), standing)
    }));
    standings.extend(served.left_out());
    standings.retain(|(cluster, _)| wanted(cluster));
    if let (Partial::Deny, Some(refusal)) = (partial, standing::refusal(&served.resource, &standings)) {
        return Err(refusal);
    }
    let include = asked.finish(form, Answer::List, served)?;
    let epochs = router.epochs();
    let version = match gathered.version.is_empty() {
        true => String::new(),
        false => gathered.version.encode(&epochs),
    };
    let metadata = Metadata { continue_token: gathered.next.map(|next| next.encode(&version)), version };
    let text = answer::write(
        served,
        Wish { form, include, items: router.items(&served.resource) },
        gathered.answered,
        &metadata,
    );
    let mut response = response::whole(StatusCode::OK, form, text);
    let own = standing::warnings(&served.resource, &standings);
    let own = own.iter().filter_map(|text| standing::warning_header(text));
    for warning in gathered.warnings.into_iter().chain(own) {
        response.headers_mut().append(header::WARNING, warning);
    }
    warn_left_out(&mut response, &served.resource, &router.left_out(served));
    Ok(response)
}

/// A cluster, and what it said.
type Said = (Arc<Cluster>, Result<Answered, Status>);

/// What a page is made of.
struct Gathered {
    answered: Vec<(Arc<Cluster>, Answered)>,
    standings: Vec<(ClusterName, Standing)>,
    /// What members warn of, each text once.
    warnings: Vec<HeaderValue>,
    version: CompositeResourceVersion,
    /// Where the next page goes on; `None` on the last.
    next: Option<Token>,
}

impl Gathered {
    fn new(token: Option<&Token>, epochs: &Epochs) -> Result<Self, Status> {
        let version = match token.and_then(|token| token.version.as_deref()) {
            Some(version) => {
                CompositeResourceVersion::decode(version, epochs).map_err(|_| Status::continue_expired(None))?
            }
            None => CompositeResourceVersion::new(),
        };
        Ok(Self { answered: Vec::new(), standings: Vec::new(), warnings: Vec::new(), version, next: None })
    }

    /// Asks the clusters from the token's on until the page is full.
    async fn ask(
        &mut self,
        clusters: &[Arc<Cluster>],
        question: &Question,
        token: Option<Token>,
        limit: u64,
        partial: Partial,
    ) -> Result<(), Status> {
        let begun = Instant::now();
        let within = if partial == Partial::Deny { KNOWN_WITHIN } else { ANSWER_WITHIN };
        let mut asked: Vec<BoxFuture<'_, Said>> = Vec::new();
        for cluster in clusters {
            let own = match &token {
                Some(token) if token.cluster.as_str() > cluster.name().as_str() => continue,
                // A token of a cluster that is gone is nobody's: the next one by name begins at its beginning.
                Some(token) if token.cluster == cluster.name().as_str() => token.token.clone(),
                _ => None,
            };
            let cluster = Arc::clone(cluster);
            asked.push(Box::pin(async move {
                let said = ask::within(within, &cluster, question, own.as_deref()).await;
                (cluster, said)
            }));
        }
        let mut answers = stream::iter(asked).buffered(AT_ONCE);
        let (mut count, mut refusals) = (0, Vec::new());
        while let Some((cluster, answer)) = answers.next().await {
            match answer {
                Ok(answered) => {
                    let items = answered.items.len() as u64;
                    if limit > 0 && count > 0 && count + items > limit {
                        self.next = Some(Token { cluster: cluster.name().to_string(), token: None, version: None });
                        break;
                    }
                    count += items;
                    let more = answered.continue_token.clone();
                    self.add(&cluster, answered);
                    if more.is_some() {
                        self.next = Some(Token { cluster: cluster.name().to_string(), token: more, version: None });
                        break;
                    }
                }
                // It does not serve it after all.
                Err(status) if status.code == 404 => {}
                // The request is wrong, or its token: the others would say the same, or never hear of it.
                Err(status) if matches!(status.code, 400 | 410 | 422) => return Err(expired(status, &cluster)),
                Err(status) => {
                    let reason = Some(status.message.clone());
                    let standing = Standing::Unknown { age: begun.elapsed(), reason, forbidden: status.code == 403 };
                    self.standings.push((cluster.name().clone(), standing));
                    refusals.push(status);
                }
            }
        }
        match refusals.pop() {
            // All say the same: it is the answer.
            Some(refusal) if self.answered.is_empty() && matches!(refusal.code, 401 | 403 | 405) => Err(refusal),
            _ => Ok(()),
        }
    }

    fn add(&mut self, cluster: &Arc<Cluster>, answered: Answered) {
        if let Some(version) = answered.version {
            self.version.set(cluster.name(), version);
        }
        for warning in &answered.warnings {
            if !self.warnings.contains(warning) {
                self.warnings.push(warning.clone());
            }
        }
        self.standings.push((cluster.name().clone(), Standing::Fresh));
        self.answered.push((Arc::clone(cluster), answered));
    }
}

/// A member's refusal of its own token: where it gives a fresh one, so is ours.
fn expired(mut status: Status, cluster: &Cluster) -> Status {
    if let Some(metadata) = status.metadata.as_mut().filter(|metadata| !metadata.continue_token.is_empty()) {
        let fresh = std::mem::take(&mut metadata.continue_token);
        let token = Token { cluster: cluster.name().to_string(), token: Some(fresh), version: None };
        metadata.continue_token = token.encode("");
    }
    status
}
