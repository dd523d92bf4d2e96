{{/* Template of the trainer's pods, the same for both controllers. */}}
{{- define "rollcast.trainerPod" -}}
{{- $role := .Values.trainer -}}
{{- $ranks := max 1 (int $role.gpus) -}}
metadata:
  labels:
    {{- include "rollcast.podLabels" (list . "trainer") | nindent 4 }}
    {{- with $role.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations: {{- include "rollcast.podAnnotations" (list . $role "trainer" 8080) | nindent 4 }}
spec:
  serviceAccountName: {{ include "rollcast.serviceAccount" . | quote }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  restartPolicy: Never
  subdomain: {{ include "rollcast.trainerHost" . }}
  securityContext: {{- include "rollcast.podSecurityContext" . | nindent 4 }}
  terminationGracePeriodSeconds: {{ $role.terminationGracePeriodSeconds }}
  {{- include "rollcast.placement" (list . $role "trainer") | nindent 2 }}
  {{- include "rollcast.deviceAffinity" (list . $role.affinity) | nindent 2 }}
  {{- with printf "%s%s" (include "rollcast.sidecars" (list . $role)) (include "rollcast.modelInit" (list . $role)) }}
  initContainers: {{- . | nindent 4 }}
  {{- end }}
  containers:
    - name: trainer
      image: {{ include "rollcast.imageText" (list . $role.image) }}
      imagePullPolicy: {{ $role.image.pullPolicy }}
      terminationMessagePolicy: FallbackToLogsOnError
      # Starts python -m rollcast.trainer once for every rank; the first pod keeps the lock of the run's folder during that time.
      command: [python, -m, rollcast.trainer.launch]
      args:
        - --nodes={{ $role.nodes }}
        - --ranks={{ $ranks }}
        # Of this Job: during an upgrade another Job's first pod has the Service's name as well.
        - --main-host=$(JOB_NAME)-0.{{ include "rollcast.trainerHost" . }}
        - --main-port=29500
        - --config=/etc/rollcast/run.yaml
        - --job=$(JOB_NAME)
        - --rendered-in=/etc/rollcast/rendered-trainer
        - --accepted-in=/etc/rollcast/accepted-trainer
        # Without a checkpoint this starts from the beginning; with one, a restarted pod continues its run.
        - --resume
        {{- range $role.extraArgs }}
        - {{ . | quote }}
        {{- end }}
      {{- with $role.envFrom }}
      envFrom: {{- toYaml . | nindent 8 }}
      {{- end }}
      env:
        - name: JOB_NAME
          valueFrom:
            fieldRef: {fieldPath: "metadata.labels['batch.kubernetes.io/job-name']"}
        {{- if eq $role.controller "job" }}
        # Ranks start again inside the pod, whose replacement would wait. A JobSet restarts the pods of all ranks together.
        - {name: ROLLCAST_RANKS_RESTARTED, value: {{ include "rollcast.restartMark" . }}}
        {{- end }}
        {{- include "rollcast.folders" . | nindent 8 }}
        {{- include "rollcast.deviceEnvironment" (list . $role) | nindent 8 }}
        {{- include "rollcast.credentials" (list . "trainer") | nindent 8 }}
        {{- if include "rollcast.hubDatasets" . }}
        {{- include "rollcast.hubToken" . | nindent 8 }}
        {{- end }}
        {{- with $role.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - {name: http, containerPort: 8080}
        - {name: rpc, containerPort: 7431}
        {{- if gt (mul $role.nodes $ranks) 1 }}
        - {name: rendezvous, containerPort: 29500}
        {{- end }}
      securityContext: {{- include "rollcast.securityContext" (list . true) | nindent 8 }}
      resources: {{- include "rollcast.deviceResources" (list . $role) | nindent 8 }}
      # Only the pod of rank 0 answers.
      startupProbe:
        exec: {command: {{ include "rollcast.trainerProbe" . }}}
        periodSeconds: 10
        failureThreshold: {{ ceil (divf $role.startupSeconds 10) }}
        timeoutSeconds: 10
      livenessProbe:
        exec: {command: {{ include "rollcast.trainerProbe" . }}}
        periodSeconds: 60
        timeoutSeconds: 20
        failureThreshold: 5
      volumeMounts:
        {{- include "rollcast.commonMounts" . | nindent 8 }}
        - {{ include "rollcast.modelMount" . }}
        - {{ include "rollcast.runsMount" . }}
        - {name: shm, mountPath: /dev/shm}
        {{- with $role.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- with include "rollcast.neighbours" (list . $role) }}
    {{- . | nindent 4 }}
    {{- end }}
  volumes:
    - name: config
      projected:
        sources:
          - configMap: {name: {{ include "rollcast.fullname" . }}-run}
          - configMap: {name: {{ include "rollcast.acceptedName" . }}, optional: true}
    {{- include "rollcast.writableVolumes" . | nindent 4 }}
    {{- include "rollcast.modelVolume" . | nindent 4 }}
    - name: runs
      persistentVolumeClaim:
        claimName: {{ .Values.storage.existingClaim | default (printf "%s-runs" (include "rollcast.fullname" .)) | quote }}
    - name: shm
      emptyDir: {medium: Memory, sizeLimit: {{ $role.sharedMemory }}}
    {{- with $role.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/* File that the launcher touches when ranks start again in the pod. */}}
{{- define "rollcast.restartMark" -}}/tmp/ranks-restarted{{- end -}}

{{/* Passes while ranks that started again in the pod may still be starting. */}}
{{- define "rollcast.trainerProbe" -}}
{{- $connect := "HTTPConnection('127.0.0.1', 8080, timeout=8)" -}}
{{- if eq (include "rollcast.probeScheme" .) "HTTPS" -}}
{{- $connect = "HTTPSConnection('127.0.0.1', 8080, timeout=8, context=ssl._create_unverified_context())" -}}
{{- end -}}
{{- $starts := printf "m = '%s'; os.path.exists(m) and time.time() - os.path.getmtime(m) < %d and sys.exit(0)" (include "rollcast.restartMark" .) (int .Values.trainer.startupSeconds) -}}
{{- $ask := printf "import http.client, os, ssl, sys, time; %s; c = http.client.%s; c.request('GET', '/healthz'); sys.exit(c.getresponse().status != 200)" $starts $connect -}}
[/bin/sh, -c, {{ printf `[ "${JOB_COMPLETION_INDEX:-0}" != 0 ] || exec python -c "%s"` $ask | quote }}]
{{- end -}}
