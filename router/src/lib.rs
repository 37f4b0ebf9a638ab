//! Decides who answers a request, a cacher or a cluster, and joins the two.
