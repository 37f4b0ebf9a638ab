//! Who is asked about a bearer token, and in which order. Pure: nothing is sent for a token before this has decided.

use tributary_apimachinery::{ClusterName, SYSTEM_PREFIX};

use crate::configuration::JwtAuthenticator;
use crate::jwt::{Token, TokenError};
use crate::member_keys::{MemberKeys, Signer};
use crate::user::{Authority, Reach, UserInfo};
use crate::verifier_name::VerifierName;

/// A bearer token by its shape.
#[derive(Debug)]
pub enum BearerToken<'a> {
    /// A JWT, which says who claims to have issued it.
    Jwt(Token<'a>),
    /// Anything else: only a cluster that reviews tokens can know it.
    Opaque,
}

impl<'a> BearerToken<'a> {
    /// Reads a token's shape. What has three parts is a JWT: if it cannot be read as one, another verifier might read
    /// in it an issuer that is not seen here, so it is refused and not passed on as opaque.
    ///
    /// # Errors
    /// [`TokenError::Malformed`], [`TokenError::Algorithm`].
    pub fn parse(text: &'a str) -> Result<Self, TokenError> {
        if text.bytes().filter(|&byte| byte == b'.').count() == 2 {
            return Token::parse(text).map(Self::Jwt);
        }
        Ok(Self::Opaque)
    }
}

/// One who is asked about a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verifier<'a> {
    /// An issuer of the AuthenticationConfiguration; its keys verify the token here.
    Issuer(&'a JwtAuthenticator),
    /// The cluster of `--token-review-cluster`, which this endpoint's own configuration trusts with names.
    TokenReviewCluster(&'a ClusterName),
    /// The member whose key has signed the token, a ServiceAccount's.
    Signer(&'a ClusterName),
    /// A member that is asked about its own users.
    Member(&'a ClusterName),
}

impl Verifier<'_> {
    /// Whose word `user` is, of whom this verifier has said that the token is theirs.
    ///
    /// Names that begin with `system:` are those of the cluster that said them, even where its word is otherwise good
    /// everywhere: `system:serviceaccount:kube-system:default` is somebody else in each cluster.
    pub fn authority(&self, user: &UserInfo) -> Authority {
        match self {
            Self::Issuer(issuer) => {
                Authority { verifier: VerifierName::issuer(&issuer.issuer_url), reach: Reach::Everywhere }
            }
            Self::TokenReviewCluster(cluster) if !user.username.starts_with(SYSTEM_PREFIX) => {
                Authority { verifier: VerifierName::cluster(cluster), reach: Reach::EverywhereFrom((*cluster).clone()) }
            }
            Self::TokenReviewCluster(cluster) | Self::Signer(cluster) | Self::Member(cluster) => {
                Authority { verifier: VerifierName::cluster(cluster), reach: Reach::Member((*cluster).clone()) }
            }
        }
    }
}

/// The cluster whose own path or host a request addresses.
#[derive(Clone, Copy, Debug)]
pub struct Addressed<'a> {
    /// Its name.
    pub cluster: &'a ClusterName,
    /// Whether its UpstreamCluster says that it is asked about tokens.
    pub reviews_tokens: bool,
}

/// Who may be asked about tokens.
#[derive(Clone, Copy, Debug)]
pub struct VerifierRules<'a> {
    /// The issuers of the AuthenticationConfiguration.
    pub issuers: &'a [JwtAuthenticator],
    /// `--token-review-cluster`.
    pub token_review_cluster: Option<&'a ClusterName>,
    /// What clusters serve at `/openid/v1/jwks`.
    pub members: &'a MemberKeys,
}

/// Why nobody is asked about a token. Names no cluster: a stranger reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefused {
    /// Several clusters serve the key that signed it: clones, or one has copied the other's.
    #[error(
        "several clusters serve the key that signed the token, so it identifies none of them; use the token at its \
         cluster's own path, /clusters/NAME"
    )]
    SeveralClusters,
    /// One cluster serves the key that signed it, and another has not said which keys it has.
    #[error(
        "it is not known whose key has signed the token, for not all clusters have said which keys they have; use the \
         token at its cluster's own path, /clusters/NAME"
    )]
    Unsettled,
    /// It is a ServiceAccount's of another cluster than the one that is addressed.
    #[error("the token is of another cluster than the one that is addressed")]
    OfAnotherCluster,
    /// Nobody here claims such a token.
    #[error("no verifier is configured for the token")]
    Nobody,
}

impl<'a> VerifierRules<'a> {
    /// The verifiers of a token, in the order in which they are asked; never empty. The next one is asked only where
    /// one has said that it does not know the token: a verifier that fails is no reason to become somebody else.
    ///
    /// A configured issuer's token is verified by that issuer and nobody else, and one that a member's keys verify is
    /// reviewed by that member and nobody else: no cluster is shown a token that is for another. On a cluster's own
    /// path no other member is asked, whatever keys it serves: a key is public. A token whose key nobody serves can be
    /// reviewed where its cluster is addressed, as those that name no key.
    ///
    /// # Errors
    /// [`TokenRefused`]: the request is answered 401 and nothing is sent.
    pub fn order(
        &self,
        token: &BearerToken<'_>,
        addressed: Option<Addressed<'a>>,
    ) -> Result<Vec<Verifier<'a>>, TokenRefused> {
        if let BearerToken::Jwt(token) = token {
            let issuer = token.unverified_issuer();
            if let Some(issuer) = self.issuers.iter().find(|configured| issuer == Some(configured.issuer_url.as_str()))
            {
                return Ok(vec![Verifier::Issuer(issuer)]);
            }
            if let Some(verifiers) = self.of_member(token, addressed)? {
                return Ok(verifiers);
            }
        }
        let hub = self.token_review_cluster;
        let own = addressed.filter(|addressed| addressed.reviews_tokens && Some(addressed.cluster) != hub);
        let order: Vec<_> = hub
            .map(Verifier::TokenReviewCluster)
            .into_iter()
            .chain(own.map(|addressed| Verifier::Member(addressed.cluster)))
            .collect();
        if order.is_empty() { Err(TokenRefused::Nobody) } else { Ok(order) }
    }

    /// The verifier of what is signed by a key that members serve; `None` where none does.
    fn of_member(
        &self,
        token: &Token<'_>,
        addressed: Option<Addressed<'a>>,
    ) -> Result<Option<Vec<Verifier<'a>>>, TokenRefused> {
        let signer = self.members.signer(token);
        let Some(addressed) = addressed.filter(|_| signer != Signer::Nobody) else {
            return self.of_signer(signer);
        };
        match self.members.has_signed(addressed.cluster, token) {
            true => Ok(Some(vec![Verifier::Signer(addressed.cluster)])),
            false => Err(TokenRefused::OfAnotherCluster),
        }
    }

    /// The same on the merged endpoint. While the keys of some cluster are unknown, any key may be a copy of one of
    /// them. The token-review cluster is then asked about its own key, and about all keys as long as its own are
    /// unknown; it is shown every token without a known key anyway.
    fn of_signer(&self, signer: Signer<'a>) -> Result<Option<Vec<Verifier<'a>>>, TokenRefused> {
        let hub = self.token_review_cluster;
        let unknown_hub = hub.filter(|hub| !self.members.know(hub));
        let is_settled = unknown_hub.is_none() && self.members.unknown().next().is_none();
        match signer {
            Signer::Nobody => Ok(None),
            Signer::Member(member) if is_settled || hub == Some(member) => Ok(Some(vec![Verifier::Signer(member)])),
            Signer::Member(_) => {
                unknown_hub.map(|hub| Some(vec![Verifier::TokenReviewCluster(hub)])).ok_or(TokenRefused::Unsettled)
            }
            Signer::Several => Err(TokenRefused::SeveralClusters),
        }
    }
}

#[cfg(test)]
mod tests;
