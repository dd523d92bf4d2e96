{{/* Spec of a pod that runs a few lines of Python, where the forecaster's may; (list . imageValues script restartPolicy rank). */}}
{{- define "rollcast.testSpec" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
restartPolicy: {{ index . 3 }}
serviceAccountName: {{ include "rollcast.serviceAccount" $root | quote }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext: {{- include "rollcast.podSecurityContext" $root | nindent 2 }}
{{- $placed := $root.Values.forecaster -}}
{{- include "rollcast.placement" (list $root $placed "test") | nindent 0 }}
{{- with $placed.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
containers:
  - name: test
    image: {{ include "rollcast.imageText" (list $root $image) }}
    imagePullPolicy: {{ $image.pullPolicy }}
    command: [python, -c]
    args:
      - |
        {{- index . 2 | trim | nindent 8 }}
    env:
      - {name: TEST_RANK, value: {{ index . 4 | quote }}}
      {{- include "rollcast.folders" $root | nindent 6 }}
      {{- include "rollcast.credentials" (list $root "generator") | nindent 6 }}
    securityContext: {{- include "rollcast.securityContext" (list $root false) | nindent 6 }}
    resources: {{- toYaml $root.Values.hooks.resources | nindent 6 }}
    volumeMounts:
      {{- include "rollcast.commonMounts" $root | nindent 6 }}
volumes:
  {{- include "rollcast.commonVolumes" $root | nindent 2 }}
{{- end -}}

{{/* A test of the control image; (list . name script). */}}
{{- define "rollcast.testPod" -}}
{{- $root := index . 0 -}}
apiVersion: v1
kind: Pod
metadata:
  name: {{ include "rollcast.fullname" $root }}-test-{{ index . 1 }}
  namespace: {{ $root.Release.Namespace | quote }}
  labels: {{- include "rollcast.labels" (list $root "test") | nindent 4 }}
  annotations:
    helm.sh/hook: test
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
spec:
  {{- include "rollcast.testSpec" (list $root $root.Values.forecaster.image (index . 2) "Never" "0") | nindent 2 }}
{{- end -}}
