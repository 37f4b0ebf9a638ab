//! A request that is let in at once allocates nothing.

use futures::FutureExt;
use tributary_flow_control::{Attributes, Dimension, Queueing};

use super::{from, one, slots, tenants, tokens};

#[test]
fn a_request_of_a_known_key_that_is_let_in_allocates_nothing() {
    let by = [Dimension::User, Dimension::Group, Dimension::Verb, Dimension::Resource];
    let queueing = Some(Queueing::default());
    for kind in [slots(100, &by, queueing), tokens(1_000, 1_000, &by, queueing)] {
        let control = one(kind.clone());
        let schema = tenants(&control);
        let groups = ["system:authenticated".to_owned(), "web".to_owned()];
        let attributes = Attributes { groups: &groups, ..from("ann") };
        let admit = || drop(schema.admit(&attributes).now_or_never().expect("there is room").expect("there is room"));
        admit();
        let allocations = allocation_counter::measure(|| (0..100).for_each(|_| admit()));
        assert_eq!(allocations.count_total, 0, "{kind:?}");
    }
}
