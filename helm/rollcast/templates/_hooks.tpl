{{/* A Job that speaks to the API server, with an account, a Role and a policy that are there only for it;
(dict "root" . "role" "name" "annotations" "..." "rules" (list) "image" imageValues "command" (list) "args" (list) "backoffLimit" 0),
and "env" (list), "weight" (of the Job, "0"; the rest comes one before), "seconds" (until it must have ended, 270: less than Helm's
own patience of five minutes), "files" (name of a ConfigMap, mounted as /etc/rollcast). */}}
{{- define "rollcast.apiHook" -}}
{{- $root := .root -}}
{{- $hook := .annotations -}}
{{- $name := printf "%s-%s" (include "rollcast.fullname" $root) .role -}}
{{- $placed := $root.Values.forecaster -}}
{{- $weight := .weight | default "0" -}}
{{- $metadata := dict "name" $name "namespace" $root.Release.Namespace "labels" (include "rollcast.labels" (list $root .role) | fromYaml)
    "annotations" (merge (dict "helm.sh/hook-weight" (sub (int $weight) 1 | toString)) (fromYaml $hook)) -}}
apiVersion: v1
kind: ServiceAccount
metadata: {{- toYaml $metadata | nindent 2 }}
automountServiceAccountToken: false
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{- toYaml $metadata | nindent 2 }}
rules: {{- toYaml .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{- toYaml $metadata | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: {{ $name }}
    namespace: {{ $root.Release.Namespace | quote }}
{{- if $root.Values.networkPolicy.enabled }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {{- toYaml $metadata | nindent 2 }}
spec:
  podSelector:
    matchLabels: {{- include "rollcast.selector" (list $root .role) | nindent 6 }}
  policyTypes: [Ingress, Egress]
  egress:
    # The API server, by the address that the cluster gives its pods: no name is asked for.
    - ports: [{port: 443}, {port: 6443}]
      {{- with $root.Values.networkPolicy.apiServerCIDR }}
      to: [{ipBlock: {cidr: {{ . }}}}]
      {{- end }}
{{- end }}
---
apiVersion: batch/v1
kind: Job
metadata: {{- toYaml (merge (dict "annotations" (merge (dict "helm.sh/hook-weight" $weight) (fromYaml $hook))) (omit $metadata "annotations")) | nindent 2 }}
spec:
  backoffLimit: {{ .backoffLimit }}
  activeDeadlineSeconds: {{ .seconds | default 270 }}
  template:
    metadata:
      labels:
        {{- include "rollcast.podLabels" (list $root .role) | nindent 8 }}
        {{- with $placed.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with $placed.podAnnotations }}
      annotations: {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      restartPolicy: Never
      serviceAccountName: {{ $name }}
      automountServiceAccountToken: true
      enableServiceLinks: false
      securityContext: {{- include "rollcast.podSecurityContext" $root | nindent 8 }}
      {{- include "rollcast.placement" (list $root $placed .role) | nindent 6 }}
      {{- with $placed.affinity }}
      affinity: {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: {{ .role }}
          image: {{ include "rollcast.imageText" (list $root .image) }}
          imagePullPolicy: {{ .image.pullPolicy }}
          command: {{- toYaml .command | nindent 12 }}
          args: {{- toYaml .args | nindent 12 }}
          env:
            {{- include "rollcast.folders" $root | nindent 12 }}
            {{- with .env }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          terminationMessagePolicy: FallbackToLogsOnError
          securityContext: {{- include "rollcast.securityContext" (list $root false) | nindent 12 }}
          resources: {{- toYaml $root.Values.hooks.resources | nindent 12 }}
          volumeMounts:
            - {name: tmp, mountPath: /tmp}
            - {name: home, mountPath: /home/rollcast}
            {{- with .files }}
            - {name: config, mountPath: /etc/rollcast, readOnly: true}
            {{- end }}
      volumes:
        {{- include "rollcast.writableVolumes" $root | nindent 8 }}
        {{- with .files }}
        - name: config
          configMap:
            name: {{ . }}
        {{- end }}
{{- end -}}

{{/* The image that the first Pod pulls: Redis's, which is small, or else the control image. */}}
{{- define "rollcast.pulledImage" -}}
{{- .Values.redis.enabled | ternary .Values.redis.image .Values.forecaster.image | toYaml -}}
{{- end -}}

{{/* Name of that Pod. All that Helm prints of a Pod that failed is its name: the image's. */}}
{{- define "rollcast.pullName" -}}
{{- $words := regexReplaceAll "[^a-z0-9.]+" (include "rollcast.image" (list . (include "rollcast.pulledImage" . | fromYaml)) | lower) "-" -}}
{{- regexReplaceAll "[-.]*-[-.]*|[.]{2,}" (printf "%s-pull-%s" (include "rollcast.fullname" .) $words) "-" | trunc 253 | trimAll "-." -}}
{{- end -}}

{{/* Names that hooks before an install or an upgrade give their objects, of several kinds. */}}
{{- define "rollcast.hookNames" -}}
{{- range $role := list "image" "image-watch" "check" "dry-run" "left-trainers" }}
- {{ printf "%s-%s" (include "rollcast.fullname" $) $role }}
{{- end }}
- {{ include "rollcast.pullName" . }}
{{- end -}}

{{/* Which trainers a hook's command deletes. */}}
{{- define "rollcast.releaseArguments" -}}
- {{ printf "--namespace=%s" .Release.Namespace | quote }}
- {{ printf "--release=%s" .Release.Name | quote }}
{{- end -}}

{{/* (list (list verbs of Jobs) (list verbs of JobSets)): no Role can limit these to the objects of a release. */}}
{{- define "rollcast.trainerRights" -}}
- apiGroups: [batch]
  resources: [jobs]
  verbs: {{ index . 0 | toJson }}
- apiGroups: [jobset.x-k8s.io]
  resources: [jobsets]
  verbs: {{ index . 1 | toJson }}
{{- end -}}
