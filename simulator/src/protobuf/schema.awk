# Makes schema.txt from the generated.proto files of Kubernetes' modules, which are given as arguments:
#
#   awk -f schema.awk api/core/v1/generated.proto api/apps/v1/generated.proto api/autoscaling/v1/generated.proto \
#       api/rbac/v1/generated.proto apimachinery/pkg/apis/meta/v1/generated.proto > schema.txt
#
# Of two messages with one name (Preconditions) the last counts. A line is a message and its fields, `name=number:type`;
# `*` says repeated, `%` a map of strings to the type.

/^message [A-Za-z]+ \{/ { message = $2; known[message] = 1; fields[message] = types[message] = ""; next }
/^}/ { message = ""; next }
message != "" && /^  (optional|repeated|map)/ {
    gsub(/map<string, */, "map %")
    gsub(/>/, "")
    gsub(/;/, "")
    sign = $1 == "repeated" ? "*" : ""
    type = $2
    sub(/^%?[.]k8s[.]io[.].*[.]/, substr(type, 1, 1) == "%" ? "%" : "", type)
    fields[message] = fields[message] " " $3 "=" $5 ":" sign type
    types[message] = types[message] " " type
}

END {
    todo = "Namespace ConfigMap Event Node Pod Secret ServiceAccount Service Deployment ReplicaSet Scale DeleteOptions " \
        "ClusterRole ClusterRoleBinding Role RoleBinding"
    while (todo != "") {
        count = split(todo, names, " ")
        todo = ""
        for (i = 1; i <= count; i++) {
            name = names[i]
            sub(/^%/, "", name)
            if (name in done || !(name in known)) continue
            done[name] = 1
            todo = todo types[name]
        }
    }
    for (name in done) print name fields[name] | "LC_ALL=C sort"
}
