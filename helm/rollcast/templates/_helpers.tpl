{{/* First in every template. `helm upgrade --reuse-values` takes the defaults of the release's chart in the place of this one's,
so values that came since are added. Values that have this chart's own number lack one only if a user took it away (null). */}}
{{- define "rollcast.withDefaults" -}}
{{- $added := .Files.Get "files/added-values.yaml" | fromYaml -}}
{{- if ne (int .Values.defaultsVersion) (int $added.defaultsVersion) -}}
{{- include "rollcast.addMissing" (list .Values $added.values) -}}
{{- $_ := set .Values "defaultsVersion" $added.defaultsVersion -}}
{{- end -}}
{{- if not (hasKey .Values "rolesAreFilled") -}}
{{- range $role := list "generator" "trainer" "forecaster" "autoscaler" "grader" "redis" -}}
{{- include "rollcast.fillRole" (list (index $.Values $role) $.Values.everyRole) -}}
{{- end -}}
{{- range .Values.environments -}}
{{- include "rollcast.fillEnvironment" (list $ .) -}}
{{- end -}}
{{- range $of := list .Values.hooks .Values.redis.exporter -}}
{{- include "rollcast.addMissing" (list $of (dict "resources" (deepCopy $.Values.everyRole.resources))) -}}
{{- end -}}
{{- range $of := list .Values.generator .Values.trainer .Values.forecaster .Values.autoscaler .Values.grader .Values.redis
    .Values.redis.exporter .Values.hooks -}}
{{- include "rollcast.quantitiesAsText" $of.resources -}}
{{- end -}}
{{- if .Values.generatorsOnly.enabled -}}
{{- range $role := list "forecaster" "redis" -}}{{- $_ := set (index $.Values $role) "enabled" false -}}{{- end -}}
{{- $external := .Values.redis.external -}}
{{- $_ := set $external "passwordSecret" ($external.passwordSecret | default .Values.auth.existingSecret) -}}
{{- end -}}
{{- $_ := set .Values "rolesAreFilled" true -}}
{{- end -}}
{{- end -}}

{{/* (list roleValues everyRole): a role's own value comes first, in maps key by key; lists are joined, but for entries of one name. */}}
{{- define "rollcast.fillRole" -}}
{{- $own := index . 0 -}}
{{- $keys := dict "extraEnv" "name" "envFrom" "" "extraContainers" "name" "extraInitContainers" "name" "extraVolumes" "name"
    "extraVolumeMounts" "mountPath" "tolerations" "" -}}
{{- range $field, $shared := index . 1 -}}
{{- $given := get $own $field -}}
{{- if hasKey $keys $field -}}
{{- $key := get $keys $field -}}
{{- $entries := $given | default list -}}
{{- $names := list -}}
{{- range $entries -}}{{- $names = append $names (get . $key) -}}{{- end -}}
{{- range $shared -}}
{{- if not (and $key (has (get . $key) $names)) -}}{{- $entries = append $entries . -}}{{- end -}}
{{- end -}}
{{- $_ := set $own $field $entries -}}
{{- else if and (kindIs "map" $shared) (ne $field "affinity") -}}
{{- include "rollcast.addMissing" (list $own (dict $field (deepCopy $shared))) -}}
{{- else -}}
{{- $_ := set $own $field ($given | default $shared) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* (list . environment): what everyRole says of all pods, then the defaults. Variables and volumes of the roles may hold secrets,
and what the model writes reaches this pod. */}}
{{- define "rollcast.fillEnvironment" -}}
{{- $root := index . 0 -}}
{{- $own := index . 1 -}}
{{- $shared := omit $root.Values.everyRole "extraEnv" "envFrom" "extraContainers" "extraInitContainers" "extraVolumes" "extraVolumeMounts" -}}
{{- include "rollcast.fillRole" (list $own $shared) -}}
{{- include "rollcast.addMissing" (list $own ($root.Files.Get "files/environment-defaults.yaml" | fromYaml)) -}}
{{- include "rollcast.quantitiesAsText" $own.resources -}}
{{- end -}}

{{/* Numbers among requests and limits become texts, as the API server keeps them; large ones would be rendered as 4e+09. */}}
{{- define "rollcast.quantitiesAsText" -}}
{{- range $amounts := . -}}
{{- range $name, $amount := $amounts -}}
{{- if not (kindIs "string" $amount) -}}
{{- $whole := eq (float64 $amount) (float64 (int64 $amount)) -}}
{{- $_ := set $amounts $name ($whole | ternary (int64 $amount | toString) (toString $amount)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* (list target source): what source has and target has not, at every depth. */}}
{{- define "rollcast.addMissing" -}}
{{- $target := index . 0 -}}
{{- range $name, $value := index . 1 -}}
{{- if not (hasKey $target $name) -}}
{{- $_ := set $target $name $value -}}
{{- else if and (kindIs "map" $value) (kindIs "map" (get $target $name)) -}}
{{- include "rollcast.addMissing" (list (get $target $name) $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "rollcast.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "rollcast.fullname" -}}
{{- $name := .Values.fullnameOverride -}}
{{- if not $name -}}
{{- $name = contains (include "rollcast.name" .) .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name (include "rollcast.name" .)) -}}
{{- end -}}
{{- include "rollcast.serviceName" $name -}}
{{- end -}}

{{/* A valid name of a Service: a letter first, no dot, 40 characters at most. A changed name gets a hash of the original, so that
two releases never become one. */}}
{{- define "rollcast.serviceName" -}}
{{- $fits := regexReplaceAll "^([0-9])" (. | replace "." "-") "n${1}" -}}
{{- if or (ne $fits .) (gt (len $fits) 40) -}}
{{- $fits = printf "%s-%s" ($fits | trunc 33 | trimSuffix "-") (. | sha256sum | trunc 6) -}}
{{- end -}}
{{- $fits -}}
{{- end -}}

{{/* Namespace and release as one name that no other release of the cluster has: namespaces have no dot. */}}
{{- define "rollcast.clusterName" -}}
{{- printf "%s.%s" .Release.Namespace (include "rollcast.fullname" .) -}}
{{- end -}}

{{/* Distinguishes this release's dashboards and data source from all others. */}}
{{- define "rollcast.releaseSum" -}}
{{- printf "%s/%s" .Release.Namespace .Release.Name | sha256sum | trunc 12 -}}
{{- end -}}

{{/* The account of every pod except the autoscaler's. Only generators that make pods of episodes call the API server with it. */}}
{{- define "rollcast.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "rollcast.fullname" .) -}}
{{- end -}}

{{/* Labels by which Services and policies select; (list . "role"). */}}
{{- define "rollcast.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "rollcast.name" $root | quote }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 | quote }}
{{- end -}}

{{/* The same as kubectl and the API take it in a query; (list . "role"). */}}
{{- define "rollcast.selectorText" -}}
{{- $terms := list -}}
{{- range $label, $value := include "rollcast.selector" . | fromYaml -}}
{{- $terms = append $terms (printf "%s=%s" $label $value) -}}
{{- end -}}
{{- join "," $terms -}}
{{- end -}}

{{/* A pod's labels; (list . "role"). The chart's version is not among them: it alone must restart nothing. */}}
{{- define "rollcast.podLabels" -}}
{{- $root := index . 0 -}}
{{ include "rollcast.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: rollcast
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Every object's labels; (list . "role"). */}}
{{- define "rollcast.labels" -}}
{{- $root := index . 0 -}}
{{ include "rollcast.podLabels" . }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* An image's name; (list . imageValues). global.imageRegistry wins over the registry, the digest over the tag. */}}
{{- define "rollcast.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $registry := ($root.Values.global).imageRegistry | default $image.registry -}}
{{- $name := empty $registry | ternary $image.repository (printf "%s/%s" $registry $image.repository) -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name ($image.tag | default $root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* The same in a manifest, where a text that begins with an IPv6 address in brackets would be a list. */}}
{{- define "rollcast.imageText" -}}
{{- $name := include "rollcast.image" . -}}
{{- hasPrefix "[" $name | ternary (quote $name) $name -}}
{{- end -}}

{{- define "rollcast.secretName" -}}
{{- .Values.auth.existingSecret | default (printf "%s-auth" (include "rollcast.fullname" .)) -}}
{{- end -}}

{{- define "rollcast.trainerHost" -}}
{{ .Values.generatorsOnly.enabled | ternary .Values.generatorsOnly.trainerHost (printf "%s-trainer" (include "rollcast.fullname" .)) }}
{{- end -}}

{{/* Name of the Job or JobSet: what of it is immutable makes another one when it changes. A JobSet's pods have longer names,
which must stay below 63 characters. */}}
{{- define "rollcast.trainerObject" -}}
{{- $spec := eq .Values.trainer.controller "jobset" | ternary "rollcast.trainerJobSetSpec" "rollcast.trainerJobSpec" -}}
{{- $hash := include $spec . | sha256sum | trunc 8 -}}
{{- if eq .Values.trainer.controller "jobset" -}}
{{- printf "%s-%s" (include "rollcast.fullname" . | trunc 30 | trimSuffix "-") $hash -}}
{{- else -}}
{{- printf "%s-trainer-%s" (include "rollcast.fullname" .) $hash -}}
{{- end -}}
{{- end -}}

{{/* Name of the Job whose pods train. */}}
{{- define "rollcast.trainerJob" -}}
{{- eq .Values.trainer.controller "jobset" | ternary (printf "%s-trainer-0" (include "rollcast.trainerObject" .)) (include "rollcast.trainerObject" .) -}}
{{- end -}}

{{/* Name of the ConfigMap that says which Job the release has. */}}
{{- define "rollcast.acceptedName" -}}
{{ include "rollcast.fullname" . }}-accepted
{{- end -}}

{{/* An id that is null is left to the cluster, as OpenShift wants it. */}}
{{- define "rollcast.podSecurityContext" -}}
runAsNonRoot: true
{{- range $id := list "runAsUser" "runAsGroup" "fsGroup" }}
{{- with index $.Values.podSecurity $id }}
{{ $id }}: {{ int64 . }}
{{- end }}
{{- end }}
{{- with .Values.podSecurity.supplementalGroups }}
supplementalGroups: {{- range . }}
  - {{ int64 . }}
{{- end }}
{{- end }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* (list . withRdma). A capability that is added is in effect for root alone, so another user is not given it. */}}
{{- define "rollcast.securityContext" -}}
{{- $rdma := (index . 0).Values.networking.rdma -}}
{{- $root := and (index . 1) $rdma.enabled $rdma.root -}}
{{- if $root -}}
runAsUser: 0
runAsNonRoot: false
{{ end -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
  {{- if $root }}
  add: [IPC_LOCK]
  {{- end }}
{{- end -}}

{{/* (list . "trainer" | "generator"). Generators of another release's run are users of its Redis. */}}
{{- define "rollcast.redisCredentials" -}}
{{- $values := (index . 0).Values -}}
{{- $external := $values.redis.external -}}
{{- $chartMadeIt := or $values.redis.enabled (and $values.generatorsOnly.enabled (not $values.generatorsOnly.redisScope)) -}}
{{- $user := $chartMadeIt | ternary (index . 1) (get $external (printf "%sUser" (index . 1))) -}}
{{- with $user }}
- {name: ROLLCAST_REDIS_USERNAME, value: {{ . | quote }}}
{{- end }}
{{- with $values.redis.enabled | ternary (include "rollcast.secretName" (index . 0)) $external.passwordSecret }}
- name: ROLLCAST_REDIS_PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ . | quote }}
      key: {{ empty $user | ternary "redis-password" (printf "redis-%s-password" (index $ 1)) }}
{{- end }}
{{- end -}}

{{/* (list . "trainer" | "generator" | ""): credentials of a service of Rollcast, and those of Redis for those that use it. */}}
{{- define "rollcast.credentials" -}}
{{- if index . 1 }}
{{- include "rollcast.redisCredentials" . }}
{{- end }}
{{- with index . 0 }}
- name: ROLLCAST_RPC_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ include "rollcast.secretName" . | quote }}
      key: rpc-token
{{- if .Values.auth.http }}
- name: ROLLCAST_HTTP_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ include "rollcast.secretName" . | quote }}
      key: http-token
{{- end }}
{{- end }}
{{- end -}}

{{/* Writable folders under a read-only root, and a name for whatever user id the pod has. */}}
{{- define "rollcast.folders" -}}
- name: HOME
  value: /home/rollcast
- name: USER
  value: rollcast
- name: TMPDIR
  value: /tmp
{{- end -}}

{{/* Presented to the hub. */}}
{{- define "rollcast.hubToken" -}}
{{- with .Values.model.tokenSecret }}
- name: HF_TOKEN
  valueFrom:
    secretKeyRef: {name: {{ . | quote }}, key: token}
{{- end }}
{{- end -}}

{{/* Whether the trainer reads a data set from the hub. */}}
{{- define "rollcast.hubDatasets" -}}
{{- if contains `"kind":"huggingface"` (toJson .Values.config.tasks) -}}true{{- end -}}
{{- end -}}

{{/* What trainer and generator add: caches, hub, interfaces. */}}
{{/* (list . roleValues). A process that finds fewer GPUs than it is told ends, and names the node. */}}
{{- define "rollcast.deviceEnvironment" -}}
{{- $root := index . 0 -}}
{{- with int (index . 1).gpus }}
- name: ROLLCAST_GPUS
  value: {{ . | quote }}
- name: ROLLCAST_NODE
  valueFrom:
    fieldRef: {fieldPath: spec.nodeName}
{{- end }}
- name: HF_HOME
  value: /models/hub
- name: TORCHINDUCTOR_CACHE_DIR
  value: /home/rollcast/.cache/inductor
- name: TRITON_CACHE_DIR
  value: /home/rollcast/.cache/triton
{{- with $root.Values.networking.interface }}
- name: NCCL_SOCKET_IFNAME
  value: {{ . | quote }}
- name: GLOO_SOCKET_IFNAME
  value: {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "rollcast.commonMounts" -}}
- name: config
  mountPath: /etc/rollcast
  readOnly: true
- name: tmp
  mountPath: /tmp
- name: home
  mountPath: /home/rollcast
{{- end -}}

{{- define "rollcast.commonVolumes" -}}
- name: config
  configMap:
    name: {{ include "rollcast.fullname" . }}-run
{{ include "rollcast.writableVolumes" . }}
{{- end -}}

{{- define "rollcast.writableVolumes" -}}
- name: tmp
  emptyDir: {}
- name: home
  emptyDir: {}
{{- end -}}

{{- define "rollcast.modelMount" -}}
{name: models, mountPath: /models{{ with .Values.model.volume.subPath }}, subPath: {{ . | quote }}{{ end }}}
{{- end -}}

{{- define "rollcast.runsMount" -}}
{name: runs, mountPath: /var/lib/rollcast/runs{{ with .Values.storage.subPath }}, subPath: {{ . | quote }}{{ end }}}
{{- end -}}

{{- define "rollcast.modelVolume" -}}
{{- $volume := .Values.model.volume -}}
- name: models
  {{- if eq $volume.kind "pvc" }}
  persistentVolumeClaim:
    claimName: {{ $volume.existingClaim | default (printf "%s-models" (include "rollcast.fullname" .)) | quote }}
  {{- else if eq $volume.kind "hostPath" }}
  hostPath:
    path: {{ $volume.hostPath }}
    type: DirectoryOrCreate
  {{- else }}
  emptyDir:
    sizeLimit: {{ $volume.size }}
  {{- end }}
{{- end -}}

{{/* The model's folder in every pod. */}}
{{- define "rollcast.modelFolder" -}}
{{- if eq .Values.model.source "hub" -}}
/models/{{ include "rollcast.setting" (list . "model.path") | replace "/" "--" }}@{{ .Values.model.revision | replace "/" "--" }}
{{- else if eq .Values.model.source "arithmetic" -}}
/models/arithmetic
{{- else -}}
{{ include "rollcast.setting" (list . "model.path") }}
{{- end -}}
{{- end -}}

{{/* Those of a role's extraContainers that run together with the others from before the first to after the last, then those that end
before the model is fetched; (list . roleValues). */}}
{{- define "rollcast.sidecars" -}}
{{- $found := list -}}
{{- range (index . 1).extraContainers -}}
{{- if eq (get . "restartPolicy") "Always" -}}{{- $found = append $found . -}}{{- end -}}
{{- end -}}
{{- with concat $found ((index . 1).extraInitContainers) }}
{{ toYaml . }}
{{- end -}}
{{- end -}}

{{/* The others, which stand among the pod's own containers; (list . roleValues). */}}
{{- define "rollcast.neighbours" -}}
{{- $found := list -}}
{{- range (index . 1).extraContainers -}}
{{- if ne (get . "restartPolicy") "Always" -}}{{- $found = append $found . -}}{{- end -}}
{{- end -}}
{{- with $found }}
{{- toYaml . }}
{{- end -}}
{{- end -}}

{{/* Fetches or trains the model before the service starts; (list . roleValues). Pods that share a volume wait for one. */}}
{{- define "rollcast.modelInit" -}}
{{- $root := index . 0 -}}
{{- $role := index . 1 -}}
{{- if ne $root.Values.model.source "folder" }}
- name: model
  image: {{ include "rollcast.imageText" (list $root $role.image) }}
  imagePullPolicy: {{ $role.image.pullPolicy }}
  command: [rollcast, model]
  args:
    {{- if eq $root.Values.model.source "hub" }}
    - fetch
    - {{ include "rollcast.setting" (list $root "model.path") | quote }}
    - --revision={{ $root.Values.model.revision }}
    - --folder={{ include "rollcast.modelFolder" $root }}
    {{- else }}
    - arithmetic
    - --folder={{ include "rollcast.modelFolder" $root }}
    {{- end }}
  {{- with $role.envFrom }}
  envFrom: {{- toYaml . | nindent 4 }}
  {{- end }}
  env:
    {{- include "rollcast.folders" $root | nindent 4 }}
    - name: HF_HOME
      value: /models/hub
    {{- if eq $root.Values.model.source "hub" }}
    {{- include "rollcast.hubToken" $root | nindent 4 }}
    {{- end }}
    {{- with $role.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  securityContext:
    {{- include "rollcast.securityContext" (list $root false) | nindent 4 }}
  # It is gone before the service starts: what that asks for serves both.
  resources: {{- toYaml $role.resources | nindent 4 }}
  volumeMounts:
    {{- include "rollcast.commonMounts" $root | nindent 4 }}
    - {{ include "rollcast.modelMount" $root }}
    {{- with $role.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
{{- end -}}

{{/* "Never", or whom a role's class puts out; (list . "role"). */}}
{{- define "rollcast.preemptionPolicy" -}}
{{- eq (index . 1) "trainer" | ternary (index . 0).Values.priorityClasses.preemptionPolicy "Never" -}}
{{- end -}}

{{/* These belong to the whole cluster, and nothing of them can change; (list . "role"). */}}
{{- define "rollcast.priorityClass" -}}
{{- $root := index . 0 -}}
{{- $role := index . 1 -}}
{{- $name := printf "%s-%s-%d" (include "rollcast.clusterName" $root) $role (int64 (index $root.Values.priorityClasses $role)) -}}
{{- eq (include "rollcast.preemptionPolicy" .) "Never" | ternary $name (printf "%s-preempts" $name) -}}
{{- end -}}

{{/* Where pods may run and what is added to each; (list . roleValues roleName). */}}
{{- define "rollcast.placement" -}}
{{- $root := index . 0 -}}
{{- $role := index . 1 -}}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $role.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $role.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $role.topologySpreadConstraints }}
topologySpreadConstraints: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $role.schedulerName }}
schedulerName: {{ . | quote }}
{{- end }}
{{- with $role.resourceClaims }}
resourceClaims: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if $role.hostNetwork }}
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
{{- end }}
{{- with $role.runtimeClassName }}
runtimeClassName: {{ . | quote }}
{{- end }}
{{- $priority := $role.priorityClassName -}}
{{- if and (not $priority) $root.Values.priorityClasses.create (has (index . 2) (list "trainer" "generator")) -}}
{{- $priority = include "rollcast.priorityClass" (list $root (index . 2)) -}}
{{- end -}}
{{- with $priority }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* Whether the chart's own model volume lets the pods of one node mount it, and no others. */}}
{{- define "rollcast.oneNode" -}}
{{- $volume := .Values.model.volume -}}
{{- if and (eq $volume.kind "pvc") (not $volume.existingClaim) (eq $volume.accessMode "ReadWriteOnce") -}}true{{- end -}}
{{- end -}}

{{/* Affinity of a role that mounts the model; (list . roleValues affinity). The first pod chooses the node of the volume. */}}
{{- define "rollcast.deviceAffinity" -}}
{{- $root := index . 0 -}}
{{- $affinity := deepCopy (index . 1) -}}
{{- if include "rollcast.oneNode" $root -}}
{{- $roles := list (dict "key" "app.kubernetes.io/component" "operator" "In" "values" (list "trainer" "generator")) -}}
{{- $selector := omit (include "rollcast.selector" (list $root "") | fromYaml) "app.kubernetes.io/component" -}}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" $selector "matchExpressions" $roles) -}}
{{- $pods := $affinity.podAffinity | default dict -}}
{{- $required := $pods.requiredDuringSchedulingIgnoredDuringExecution | default list -}}
{{- $_ := set $pods "requiredDuringSchedulingIgnoredDuringExecution" (append $required $term) -}}
{{- $_ := set $affinity "podAffinity" $pods -}}
{{- end -}}
{{- with $affinity -}}
affinity: {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* Pod annotations; (list . roleValues "role" port). A change of what the role reads of the run file restarts it; a
change of other settings must not: more replicas, for one, must leave the trainer alone. */}}
{{- define "rollcast.podAnnotations" -}}
{{- $root := index . 0 -}}
{{- $unread := get (dict
  "trainer" (list "autoscaler" "forecaster" "local")
  "generator" (list "autoscaler" "forecaster" "local" "budget" "stop_when")
  "forecaster" (list "autoscaler" "grader" "local")
  "autoscaler" (list "forecaster" "grader" "local")
  "grader" (list "autoscaler" "budget" "forecaster" "generator" "local" "model" "recipe" "redis" "stop_when" "trainer"
    "weights")) (index . 2) -}}
{{- $read := include "rollcast.runFile" $root | fromYaml -}}
{{- range $unread -}}{{- $_ := unset $read . -}}{{- end -}}
checksum/config: {{ toYaml $read | sha256sum | quote }}
{{- if $root.Values.monitoring.annotations }}
prometheus.io/scrape: "true"
prometheus.io/scheme: {{ include "rollcast.probeScheme" $root | lower }}
prometheus.io/port: {{ index . 3 | quote }}
prometheus.io/path: /metrics
{{- end }}
{{- with (index . 1).podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Name and the like of a role's workload, with what its owner adds for queues and policies; (list . roleValues "role" name). */}}
{{- define "rollcast.workloadMetadata" -}}
{{- $root := index . 0 -}}
{{- $role := index . 1 -}}
name: {{ index . 3 }}
namespace: {{ $root.Release.Namespace | quote }}
labels:
  {{- include "rollcast.labels" (list $root (index . 2)) | nindent 2 }}
  {{- with $role.labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $role.annotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* A quantity of memory as a number of bytes. */}}
{{- define "rollcast.bytes" -}}
{{- include "rollcast.amount" . | float64 | int64 -}}
{{- end -}}

{{/* A quantity as a number of its unit, fractions too. */}}
{{- define "rollcast.amount" -}}
{{- $units := dict "" 1 "n" 1e-9 "u" 1e-6 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18
    "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "Ei" 1152921504606846976 -}}
{{- mulf (regexFind "^[+0-9.]+([eE][-+]?[0-9]+)?" . | float64) (index $units (regexFind "[A-Za-z]*$" .)) -}}
{{- end -}}

{{/* (list . roleValues). Without a resource's name devices come by resourceClaims. */}}
{{- define "rollcast.deviceResources" -}}
{{- $root := index . 0 -}}
{{- $role := index . 1 -}}
{{- $resources := deepCopy $role.resources -}}
{{- $limits := $resources.limits | default dict -}}
{{- if gt (int $role.gpus) 0 -}}
{{- with $root.Values.gpu.resource -}}
{{- $_ := set $limits . (int $role.gpus) -}}
{{- end -}}
{{- if $root.Values.networking.rdma.enabled -}}
{{- $_ := set $limits $root.Values.networking.rdma.resource (int $root.Values.networking.rdma.count) -}}
{{- end -}}
{{- end -}}
{{- $_ := set $resources "limits" $limits -}}
{{- $claims := list -}}
{{- range $role.resourceClaims -}}{{- $claims = append $claims (pick . "name") -}}{{- end -}}
{{- with $claims -}}{{- $_ := set $resources "claims" . -}}{{- end -}}
{{- toYaml $resources -}}
{{- end -}}

{{- define "rollcast.probeScheme" -}}
{{- if include "rollcast.setting" (list . "http.tls") -}}HTTPS{{- else -}}HTTP{{- end -}}
{{- end -}}

{{/* Values of earlier charts that a release still has: its path -> why it is gone. */}}
{{- define "rollcast.removedValues" -}}
{{- if hasKey .Values.autoscaler "fallbackReplicas" }}
autoscaler.fallbackReplicas: while the autoscaler does not answer, generators stay as many as they are
{{- end }}
{{- if kindIs "map" .Values.config.weights }}
{{- if hasKey .Values.config.weights "encoding" }}
config.weights.encoding: every version of the weights is sent whole
{{- end }}
{{- end }}
{{- end -}}

{{/* Tags of images of Rollcast that name another version than this chart's. */}}
{{- define "rollcast.otherTags" -}}
{{- $found := list -}}
{{- range $role := list "trainer" "generator" "forecaster" "autoscaler" "grader" -}}
{{- $image := (index $.Values $role).image -}}
{{- if and (not $image.digest) (regexMatch "^v?[0-9]+[.][0-9]+[.][0-9]+" $image.tag) -}}
{{- if ne (regexFind "[0-9]+[.][0-9]+[.][0-9]+" $image.tag) $.Chart.AppVersion -}}
{{- $found = append $found (printf "%s.image.tag = %s" $role $image.tag) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $found -}}
{{- end -}}

{{/* Images of Rollcast that name no registry: this chart publishes none. */}}
{{- define "rollcast.unpublishedImages" -}}
{{- $found := list -}}
{{- range $role := list "forecaster" "trainer" "generator" -}}
{{- $image := (index $.Values $role).image -}}
{{- if not (or ($.Values.global).imageRegistry $image.registry) -}}
{{- $found = append $found (include "rollcast.image" (list $ $image)) -}}
{{- end -}}
{{- end -}}
{{- toYaml $found -}}
{{- end -}}
