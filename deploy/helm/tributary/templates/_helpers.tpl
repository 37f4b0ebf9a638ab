{{- define "tributary.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "tributary.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "tributary.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "tributary.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "tributary.selectorLabels" -}}
app.kubernetes.io/name: {{ include "tributary.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "tributary.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" | quote }}
{{ include "tributary.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "tributary.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{/* The account of the pods. It is not that of `tributary join`, which has the name tributary and may impersonate users. */}}
{{- define "tributary.serviceAccount" -}}
{{ include "tributary.fullname" . }}-server
{{- end -}}

{{- define "tributary.servingSecret" -}}
{{- default (printf "%s-serving" (include "tributary.fullname" .)) .Values.serving.secretName -}}
{{- end -}}

{{/* The host of --listen: an address of IPv6 stands in brackets before its port. */}}
{{- define "tributary.listenHost" -}}
{{- $address := .Values.listenAddress -}}
{{- if and (contains ":" $address) (not (hasPrefix "[" $address)) -}}
{{- printf "[%s]" $address -}}
{{- else -}}
{{- $address -}}
{{- end -}}
{{- end -}}

{{/* Whether the chart's own cluster is the hub, so that the pods need roles and a token: "true", or nothing. */}}
{{- define "tributary.hubInCluster" -}}
{{- if and .Values.hub.enabled (not .Values.hub.kubeconfigSecret) -}}true{{- end -}}
{{- end -}}

{{- define "tributary.hubNamespace" -}}
{{- default (ternary "tributary-system" .Release.Namespace (ne .Values.hub.kubeconfigSecret "")) .Values.hub.secretNamespace -}}
{{- end -}}

{{- define "tributary.aggregatedService" -}}
{{ include "tributary.fullname" . }}-aggregated
{{- end -}}

{{/* Whether the chart makes or mounts a configuration beside the hub: "true", or nothing. */}}
{{- define "tributary.hasConfiguration" -}}
{{- if or .Values.configuration.objects .Values.configuration.existingConfigMap .Values.configuration.existingSecret -}}true{{- end -}}
{{- end -}}

{{- define "tributary.dataClaim" -}}
{{- default (printf "%s-data" (include "tributary.fullname" .)) .Values.dataDirectory.existingClaim -}}
{{- end -}}

{{/* Whether the chart makes files beside the configuration: "true", or nothing. */}}
{{- define "tributary.hasFiles" -}}
{{- if or .Values.authentication.configuration .Values.authentication.deniedUsers .Values.audit.policy .Values.tracing.configuration -}}true{{- end -}}
{{- end -}}

{{/* Where the key of a ConfigMap or Secret comes from, as the source of a volume; a file of this name. */}}
{{- define "tributary.authorities" -}}
{{- if .configMapName -}}
configMap:
  name: {{ .configMapName | quote }}
  items: [{key: {{ .key | quote }}, path: ca.crt}]
{{- else -}}
secret:
  secretName: {{ .secretName | quote }}
  defaultMode: 0440
  items: [{key: {{ .key | quote }}, path: ca.crt}]
{{- end -}}
{{- end -}}

{{/* What a schema cannot say: what has to be given, and what does not go together. */}}
{{- define "tributary.validate" -}}
{{- $configuration := .Values.configuration -}}
{{- $sources := 0 -}}
{{- range list $configuration.objects $configuration.existingConfigMap $configuration.existingSecret -}}
{{- if . -}}{{- $sources = add1 $sources -}}{{- end -}}
{{- end -}}
{{- if and .Values.hub.enabled (gt (int $sources) 1) -}}
{{- fail "configuration: give at most one of objects, existingConfigMap and existingSecret beside the hub" -}}
{{- end -}}
{{- if and (not .Values.hub.enabled) (ne (int $sources) 1) -}}
{{- fail "configuration: give exactly one of objects, existingConfigMap and existingSecret; it says which clusters are served" -}}
{{- end -}}
{{- $fullname := include "tributary.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $fullname) -}}
{{- fail (printf "fullnameOverride: %s, which the release gives, is no name of a Service; give one of a-z, 0-9 and -, a letter first" $fullname) -}}
{{- end -}}
{{- range $object := $configuration.objects -}}
{{- $found := list -}}
{{- with $object.spec.credentials -}}
{{- if .token -}}{{- $found = append $found "credentials.token" -}}{{- end -}}
{{- if .clientKeyData -}}{{- $found = append $found "credentials.clientKeyData" -}}{{- end -}}
{{- end -}}
{{- with $object.spec.secureServing -}}
{{- if .keyData -}}{{- $found = append $found "secureServing.keyData" -}}{{- end -}}
{{- end -}}
{{- /* No address without a user has an @: a user that is one by name alone may be a key. */ -}}
{{- if contains "@" (toString $object.spec.proxyURL) -}}{{- $found = append $found "proxyURL" -}}{{- end -}}
{{- $withUser := list -}}
{{- range $number, $endpoint := $object.spec.endpoints -}}
{{- if contains "@" (toString $endpoint) -}}{{- $withUser = append $withUser (printf "endpoints[%d]" $number) -}}{{- end -}}
{{- end -}}
{{- $remedy := "name a file of a Secret in members or extraVolumes, or give all by existingSecret" -}}
{{- if has "proxyURL" $found -}}
{{- $remedy = "name a kubeconfig of a Secret in members or extraVolumes by spec.kubeconfig.path, with the user in its proxy-url, or give all by existingSecret" -}}
{{- end -}}
{{- if $found -}}
{{- fail (printf "configuration.objects: %s has a secret in spec.%s, and objects stand in a ConfigMap; %s" $object.metadata.name (join ", spec." $found) $remedy) -}}
{{- end -}}
{{- if $withUser -}}
{{- fail (printf "configuration.objects: %s has a user in spec.%s; write endpoints without one, and give credentials by spec.credentials or spec.kubeconfig" $object.metadata.name (join ", spec." $withUser)) -}}
{{- end -}}
{{- end -}}
{{- if and (not .Values.serving.secretName) (not .Values.serving.certificate.create) -}}
{{- fail "serving.secretName: name a Secret of type kubernetes.io/tls, or have cert-manager make one by serving.certificate.create" -}}
{{- end -}}
{{- if and .Values.serving.certificate.create (not .Values.serving.certificate.issuerRef.name) -}}
{{- fail "serving.certificate.issuerRef.name: name the Issuer or ClusterIssuer of the certificate" -}}
{{- end -}}
{{- range list .Values.authentication.clientCA .Values.authentication.requestHeader.clientCA -}}
{{- if and .configMapName .secretName -}}
{{- fail (printf "authentication: %s and %s are both given for one clientCA; leave out configMapName or secretName" .configMapName .secretName) -}}
{{- end -}}
{{- end -}}
{{- $publish := .Values.publish -}}
{{- $publishesSecrets := or $publish.kubeconfigSecretsNamespace $publish.argoCDSecretsNamespace -}}
{{- if or $publish.clusterProfilesNamespace $publishesSecrets -}}
{{- if not .Values.hub.enabled -}}
{{- fail "publish: Tributary publishes clusters in a hub; set hub.enabled, or leave the namespaces empty" -}}
{{- end -}}
{{- if not $publish.address -}}
{{- fail "publish.address: give the URL of Tributary for the controllers" -}}
{{- end -}}
{{- if and $publishesSecrets (not (and $publish.serviceAccount.namespace $publish.serviceAccount.name)) -}}
{{- fail "publish.serviceAccount: published Secrets contain a token; give namespace and name of its ServiceAccount" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.hub.kubeconfigSecret (or .Values.hub.sourceLists .Values.hub.sourceSecretNamespaces) -}}
{{- fail "hub.sourceLists, hub.sourceSecretNamespaces: the chart creates no rights in the hub of hub.kubeconfigSecret; create them in this hub, and leave out both values" -}}
{{- end -}}
{{- $aggregation := .Values.aggregation -}}
{{- if and (or $aggregation.enabled .Values.ocm.enabled) (not .Values.hub.enabled) -}}
{{- fail "aggregation.enabled, ocm.enabled: the hub authenticates the users; set hub.enabled" -}}
{{- end -}}
{{- if and (or $aggregation.doors $aggregation.karmadaServers) (not $aggregation.enabled) -}}
{{- fail "aggregation.doors, aggregation.karmadaServers: the doors are paths of the aggregated API; set aggregation.enabled" -}}
{{- end -}}
{{- if and $aggregation.karmadaServers (not (has "karmada" $aggregation.doors)) -}}
{{- fail "aggregation.karmadaServers: only the door of Karmada uses the old servers; add karmada to aggregation.doors" -}}
{{- end -}}
{{- if and .Values.hub.kubeconfigSecret (or $aggregation.caBundle $aggregation.apiServiceAnnotations) -}}
{{- fail "aggregation.caBundle, aggregation.apiServiceAnnotations: the APIService is in the hub of hub.kubeconfigSecret; change it there, and leave out both values" -}}
{{- end -}}
{{- if and $aggregation.caBundle (not $aggregation.servingSecretName) -}}
{{- fail "aggregation.caBundle: Tributary makes the certificate, and writes its authority; leave out caBundle, or name the Secret of your certificate by aggregation.servingSecretName" -}}
{{- end -}}
{{- if and $aggregation.servingSecretName (not .Values.hub.kubeconfigSecret) (not $aggregation.caBundle) (not $aggregation.apiServiceAnnotations) -}}
{{- fail "aggregation.servingSecretName: give the authority of the certificate by aggregation.caBundle, or have a controller write it by aggregation.apiServiceAnnotations" -}}
{{- end -}}
{{- $ports := list (int .Values.containerPort) -}}
{{- if $aggregation.enabled -}}{{- $ports = append $ports (int $aggregation.port) -}}{{- end -}}
{{- if .Values.ocm.enabled -}}{{- $ports = append $ports (int .Values.ocm.port) -}}{{- end -}}
{{- if ne (len $ports) (len (uniq $ports)) -}}
{{- fail "aggregation.port, ocm.port: containerPort or the other value has the same number; give a different one" -}}
{{- end -}}
{{- $drain := 10 -}}
{{- if lt (int .Values.terminationGracePeriodSeconds) (int (add .Values.shutdownDelaySeconds $drain 5)) -}}
{{- fail (printf "terminationGracePeriodSeconds: %d is too short; shutdownDelaySeconds, %d s for what is open, and 5 s to end take %d s" (int .Values.terminationGracePeriodSeconds) $drain (int (add .Values.shutdownDelaySeconds $drain 5))) -}}
{{- end -}}
{{- end -}}
