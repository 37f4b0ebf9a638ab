//! Deliberate differences between the answers of Tributary and of kube-apiserver, with their reasons. All other answers
//! must be the same.

#[derive(Debug)]
pub(crate) struct Difference {
    pub(crate) kubernetes: &'static str,
    pub(crate) tributary: &'static str,
    pub(crate) reason: &'static str,
}

pub(crate) const GET_OF_GARBAGE_VERSION: Difference = Difference {
    kubernetes: "500 without a reason",
    tributary: "400 BadRequest",
    reason: "the client is wrong, not the server; kubernetes/kubernetes#113939 says the same",
};

/// Response to a create from YAML whose aliases expand to several times the size of the document.
pub(crate) const YAML_WITH_MANY_ALIASES: Difference = Difference {
    kubernetes: "takes them, as far as they are 99 % of at most 400,000 values",
    tributary: "400 BadRequest, with kube-apiserver's words for more of them",
    reason: "what they stand for is held in memory, and takes time that other clients wait for",
};

pub(crate) const WATCH_OF_GARBAGE_VERSION: Difference = Difference {
    kubernetes: "500 without a reason",
    tributary: "200 and an in-stream ERROR 410, then the end",
    reason: "kube-rs and RetryWatcher repeat a watch that fails with an HTTP status for ever; on an in-stream 410 they list anew",
};

pub(crate) const WATCH_OF_A_FUTURE_VERSION: Difference = Difference {
    kubernetes: "the stream opens and stays silent until the version is passed",
    tributary: "the member is asked; where it is behind the version, an in-stream ERROR 410",
    reason: "a version that a member never had comes from before a restore; waiting for it hides every change until then",
};

pub(crate) const LIST_AT_A_FUTURE_VERSION: Difference = Difference {
    kubernetes: "504 Timeout after three seconds, cause ResourceVersionTooLarge",
    tributary: "the member is asked; where it is behind the version, 410 Expired",
    reason: "a version that a member never had comes from before a restore; a Reflector lists from scratch on 410 alone",
};

/// Response to a list with a plain number as resourceVersion, although the server uses composite versions.
pub(crate) const LIST_AT_A_PLAIN_NUMBER: Difference = Difference {
    kubernetes: "a version like any other",
    tributary: "410 Expired",
    reason: "it names no cluster; a Reflector lists from scratch on 410 alone",
};

pub(crate) const VERSION_OF_OTHER_CLUSTERS: Difference = Difference {
    kubernetes: "a text that does not decode: 400 on list, 500 on get and watch",
    tributary: "410 Expired on list, in the stream on watch, with a token to go on from on continue; 400 on get",
    reason: "it was handed out by a server of other clusters; a Reflector lists from scratch on 410 alone",
};

pub(crate) const ESCAPED_SLASH: Difference = Difference {
    kubernetes: "decoded before routing: /namespaces/ns%2Fconfigmaps%2Fname is that config map",
    tributary: "refused with a Status",
    reason: "a path that means one thing to an authorizer in front and another behind it is a hole",
};

pub(crate) const COLLECTIONS_AS_ANOTHER: Difference = Difference {
    kubernetes: "answered by what that user may read",
    tributary: "403 Forbidden that points to /clusters/<name>",
    reason: "memory holds what Tributary itself may read; objects and writes are asked for live, in the user's name",
};

pub(crate) const ORDER_BY_CLUSTER: Difference = Difference {
    kubernetes: "by namespace and name",
    tributary: "by cluster, then by namespace and name",
    reason: "pages are cut from one snapshot per cluster",
};

/// The answer to a selector of more than 128 requirements or 1,000 values, and to a query of more than 64 parameters.
pub(crate) const MORE_THAN_IS_LOOKED_AT: Difference = Difference {
    kubernetes: "taken, as long as the request is not too long",
    tributary: "400 BadRequest with the bound",
    reason: "each requirement is asked of each object that is held, and nobody writes so many by hand",
};

pub(crate) const CLUSTER_COLUMN: Difference = Difference {
    kubernetes: "the columns of the kind",
    tributary: "the same with Cluster as the second",
    reason: "a reader of several clusters has to see which one a row is from; Name stays column 0, as clients expect",
};

pub(crate) const CLUSTER_ANNOTATION: Difference = Difference {
    kubernetes: "the object's own",
    tributary: "the same and tributary.dev/cluster",
    reason: "a client of several clusters has to see which one an object is from",
};

pub(crate) const PROTOBUF_ALONE: Difference = Difference {
    kubernetes: "protobuf",
    tributary: "406 NotAcceptable",
    reason: "answers are JSON until a later release; clients that also name JSON are answered in JSON",
};

/// Quotes and indentation in YAML responses.
pub(crate) const YAML_STYLE: Difference = Difference {
    kubernetes: "single quotes where a text has to be quoted, none around keys with a colon, long texts folded, keys by their numbers",
    tributary: "double quotes, each text on one line, keys by their bytes",
    reason: "it says the same to every parser, Go's included",
};

pub(crate) const LAST_PAGE_OF_A_SELECTION: Difference = Difference {
    kubernetes: "may carry a continue token behind which nothing matches",
    tributary: "carries none",
    reason: "what follows is in memory, and a client is spared an empty page",
};

/// The answer to a query with a pair that cannot be decoded (`limit=%zz`, `a;b`), or that is not UTF-8 (`x=%ff`).
pub(crate) const UNDECODABLE_QUERY: Difference = Difference {
    kubernetes: "the pair is left out, and the rest counts; what is no UTF-8 is taken as bytes",
    tributary: "400 BadRequest that names the parameter",
    reason: "a selector or limit that is silently left out shows more than was asked for, and a request that is read in two ways is judged as one and done as the other",
};

pub(crate) const EMPTY_METADATA_LIST: Difference = Difference {
    kubernetes: "\"items\":null",
    tributary: "\"items\":[]",
    reason: "as every other list, and what clients expect; kube-apiserver's is an accident of Go",
};

/// The answer to a path with an empty segment, except for one slash at the end.
pub(crate) const EMPTY_SEGMENT: Difference = Difference {
    kubernetes: "taken out, or an empty name: /namespaces//configmaps are those of all namespaces",
    tributary: "404 NotFound",
    reason: "a path that means one thing to an authorizer in front and another behind it is a hole",
};

pub(crate) const NO_TOKEN_ISSUER: Difference = Difference {
    kubernetes: "who issues its service accounts' tokens, and by which keys",
    tributary: "404",
    reason: "several clusters have several issuers, and Tributary is none; each cluster's own stands below /clusters/<name>",
};

pub(crate) const NO_INDEX_PAGE: Difference = Difference {
    kubernetes: "the list of paths, as at /",
    tributary: "404",
    reason: "a leftover of an early user interface; / says the same",
};

pub(crate) const ROOT_PATHS: Difference = Difference {
    kubernetes: "the list of all paths, those of its health checks, metrics and logs included",
    tributary: "the paths of discovery, health, OpenAPI and version",
    reason: "it lists what this process serves",
};

/// Server address in the legacy (unaggregated) discovery document at `/api`.
pub(crate) const SERVER_ADDRESS: Difference = Difference {
    kubernetes: "serverAddressByClientCIDRs names the address that it advertises",
    tributary: "it names the address that the client used",
    reason: "the other would lead past Tributary",
};

pub(crate) const VERB_WITHOUT_RESOURCE: Difference = Difference {
    kubernetes: "500: it cannot tell what is asked for",
    tributary: "404 NotFound",
    reason: "nothing stands there, and the server is not at fault",
};

/// The answer to a POST, PUT, PATCH, DELETE or unknown method at a non-resource path.
pub(crate) const WRITE_TO_A_DOCUMENT: Difference = Difference {
    kubernetes: "some documents are answered as to GET (or 406), some paths are 404",
    tributary: "405 MethodNotAllowed",
    reason: "a write that is answered 200 looks done, and there is nothing to write to",
};

pub(crate) const BOOKMARK_OBJECT: Difference = Difference {
    kubernetes: "an empty object of the kind, with the fields that Go writes even when they are empty",
    tributary: "kind, apiVersion and metadata",
    reason: "a bookmark says a version; only Go's types know which fields of a kind are never left out",
};

/// The answer to a read of `/version` or of a discovery document with a `Content-Type` header.
pub(crate) const CONTENT_TYPE_OF_A_READ: Difference = Difference {
    kubernetes: "415 but for JSON, at /version, /api and the documents of versions",
    tributary: "not looked at, as at every other path",
    reason: "a read has no body",
};

/// The answer to a list whose field selector and continue token are both invalid.
pub(crate) const TOKEN_BEFORE_FIELDS: Difference = Difference {
    kubernetes: "400 that names the selector",
    tributary: "400 that names the token",
    reason: "a token is judged before clusters are waited for, whose word on fields is needed",
};

/// The answer to a write to a missing object, with a body that cannot be decoded as its kind, or with invalid options.
pub(crate) const WRITE_TO_NOTHING: Difference = Difference {
    kubernetes: "400 or 422 that tells what is wrong with the body or the options",
    tributary: "404, or 400 with words of its own where the body is no JSON",
    reason: "bodies and options are judged by the cluster that owns the object, and none does",
};

pub(crate) const WARNING_OF_A_MEMBER: Difference = Difference {
    kubernetes: "the text alone",
    tributary: "behind the name of the cluster, and ten at most",
    reason: "the text of one cluster could pass for what another, or all of them, say",
};

/// Removes the cluster name that Tributary adds to a Warning of a member.
pub(crate) fn without_cluster(warning: &str) -> String {
    match warning.split_once("\"cluster") {
        Some((before, named)) => match named.split_once(": ") {
            Some((_, text)) => format!("{before}\"{text}"),
            None => warning.to_owned(),
        },
        None => warning.to_owned(),
    }
}

pub(crate) const WARNING_OF_A_DELETE: Difference = Difference {
    kubernetes: "a delete of a Job warns that its pods stay, even of one that does not exist",
    tributary: "no warning without an object",
    reason: "the warning is the owner's, and there is none",
};

/// Response to a write, if the response cannot be encoded in the requested media type.
pub(crate) const FORM_OF_A_WRITE: Difference = Difference {
    kubernetes: "carried out, then 406",
    tributary: "406, and nothing is done",
    reason: "a write that is answered by an error looks failed",
};

/// The answer to a watch with `as=PartialObjectMetadataList`.
pub(crate) const WATCH_OF_LIST_METADATA: Difference = Difference {
    kubernetes: "200, and whole objects, because none can be transformed",
    tributary: "406 NotAcceptable",
    reason: "who asks for metadata alone is not prepared for objects, and has no right to expect them",
};

/// Response to aggregated discovery at `/apis/` (with a slash at the end).
pub(crate) const AGGREGATED_AT_A_SLASH: Difference = Difference {
    kubernetes: "the document of old alone, else 406",
    tributary: "the same as at /apis",
    reason: "it is one document; kube-apiserver's two handlers are an accident",
};
