//! Chooses the verifiers for a bearer token, and their order. The functions are pure and send no requests.

use tributary_apimachinery::{ClusterName, SYSTEM_PREFIX};

use crate::authority::Authority;
use crate::configuration::JwtAuthenticator;
use crate::jwt::{Token, TokenError};
use crate::member_keys::{MemberKeys, Signer};
use crate::user::UserInfo;

/// A bearer token, classified by its format.
#[derive(Debug)]
pub enum BearerToken<'a> {
    /// A JSON Web Token, which names its issuer.
    Jwt(Token<'a>),
    /// A token in any other format. Only a TokenReview can verify the token.
    Opaque,
}

impl<'a> BearerToken<'a> {
    /// Detects the format of a token. A token with three parts is a JWT. A malformed JWT is rejected and not reviewed
    /// as an opaque token: a cluster might read an issuer that Tributary cannot read.
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

/// A verifier of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verifier<'a> {
    /// An issuer of the AuthenticationConfiguration. Its keys verify the token in this process.
    Issuer(&'a JwtAuthenticator),
    /// The cluster of `--token-review-cluster`, whose users are valid in all members.
    TokenReviewCluster(&'a ClusterName),
    /// The member whose key signed the token of a ServiceAccount.
    Signer(&'a ClusterName),
    /// A member that reviews the tokens of requests to its own path or host.
    Member(&'a ClusterName),
}

impl Verifier<'_> {
    /// Returns the authority for a user from this verifier.
    ///
    /// A name that begins with `system:` is valid only in the cluster that reported the name, even for the token-review
    /// cluster: `system:serviceaccount:kube-system:default` is a different account in each cluster.
    pub fn authority(&self, user: &UserInfo) -> Authority {
        match self {
            Self::Issuer(issuer) => Authority::Issuer(issuer.issuer_url.clone()),
            Self::TokenReviewCluster(cluster) if !user.username.starts_with(SYSTEM_PREFIX) => {
                Authority::TokenReviewCluster((*cluster).clone())
            }
            Self::TokenReviewCluster(cluster) | Self::Signer(cluster) | Self::Member(cluster) => {
                Authority::Member((*cluster).clone())
            }
        }
    }
}

/// The cluster whose own path or host a request uses.
#[derive(Clone, Copy, Debug)]
pub struct AddressedCluster<'a> {
    /// The name of the cluster.
    pub cluster: &'a ClusterName,
    /// Whether the UpstreamCluster object enables reviews of tokens by the cluster.
    pub reviews_tokens: bool,
}

/// The configured verifiers of bearer tokens.
#[derive(Clone, Copy, Debug)]
pub struct VerifierRules<'a> {
    /// The issuers of the AuthenticationConfiguration.
    pub issuers: &'a [JwtAuthenticator],
    /// The cluster of `--token-review-cluster`.
    pub token_review_cluster: Option<&'a ClusterName>,
    /// The keys that members serve at `/openid/v1/jwks`.
    pub members: &'a MemberKeys,
}

/// The reason why no verifier may verify a token. The reason names no cluster, because an unauthenticated client reads
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefused {
    /// Several clusters serve the key that signed the token. Either the clusters are clones, or one cluster copied the
    /// key of another cluster.
    #[error(
        "several clusters serve the key that signed the token, so it identifies none of them; use the token at its \
         cluster's own path, /clusters/NAME"
    )]
    SeveralClusters,
    /// One cluster serves the key that signed the token, but the keys of another cluster are unknown.
    #[error(
        "the cluster that issued the token cannot be determined, because the keys of some clusters are unknown; use the \
         token at its cluster's own path, /clusters/NAME"
    )]
    Unsettled,
    /// The token belongs to a ServiceAccount of another cluster than the cluster in the request's path or host.
    #[error("the token belongs to another cluster than the one in the path or host of the request")]
    OfAnotherCluster,
    /// No verifier is configured for the issuer or the format of the token.
    #[error("no verifier is configured for the token")]
    Nobody,
}

impl<'a> VerifierRules<'a> {
    /// Returns the verifiers of a token in the order of use; never an empty list. The next verifier is used only if the
    /// previous verifier rejects the token. If a verifier fails, the token must not be sent to another verifier, where
    /// the token could belong to another user.
    ///
    /// A token of a configured issuer is verified by that issuer alone. A token that a member's key signed is reviewed
    /// by that member alone: no cluster gets a token of another cluster. On a cluster's own path no other member
    /// reviews a token, even if that member serves the key, because keys are public. A token without a key id, or with
    /// an unknown key, may be reviewed by the cluster in the request's path.
    /// # Errors
    /// [`TokenRefused`]: the request is answered with 401, and no request is sent for the token.
    pub fn order(
        &self,
        token: &BearerToken<'_>,
        addressed: Option<AddressedCluster<'a>>,
    ) -> Result<Vec<Verifier<'a>>, TokenRefused> {
        if let BearerToken::Jwt(token) = token {
            let issuer = token.unverified_issuer();
            if let Some(issuer) = self.issuers.iter().find(|configured| issuer == Some(configured.issuer_url.as_str()))
            {
                return Ok(vec![Verifier::Issuer(issuer)]);
            }
            if let Some(verifiers) = self.order_by_key(token, addressed)? {
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

    /// Returns the verifier of a token that a member's key signed, or `None` if no member serves the key.
    fn order_by_key(
        &self,
        token: &Token<'_>,
        addressed: Option<AddressedCluster<'a>>,
    ) -> Result<Option<Vec<Verifier<'a>>>, TokenRefused> {
        let signer = self.members.signer(token);
        let Some(addressed) = addressed.filter(|_| signer != Signer::Nobody) else {
            return self.order_by_signer(signer);
        };
        match self.members.has_signed(addressed.cluster, token) {
            true => Ok(Some(vec![Verifier::Signer(addressed.cluster)])),
            false => Err(TokenRefused::OfAnotherCluster),
        }
    }

    /// Chooses the verifier like [`Self::order_by_key`], for the merged view.
    ///
    /// While the keys of any cluster are unknown, each served key may be a copy of a key of that cluster. Until all
    /// keys are known, only the token-review cluster may get a token: a token that its own key signed, or, while its
    /// own keys are unknown, a token that the key of any member signed. A token that no known key signed also goes to
    /// the token-review cluster.
    fn order_by_signer(&self, signer: Signer<'a>) -> Result<Option<Vec<Verifier<'a>>>, TokenRefused> {
        let hub = self.token_review_cluster;
        let unknown_hub = hub.filter(|hub| !self.members.has_known_keys(hub));
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
