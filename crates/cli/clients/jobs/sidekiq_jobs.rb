# Jobs of Sidekiq. A worker removes a job from its queue with one command (BRPOP). The process `work` becomes Sidekiq's own program, which
# loads this file.

require "sidekiq"

AHEAD = 60
LINE_BYTES = 7

def note(file, number)
  File.open(file, File::WRONLY | File::APPEND | File::CREAT) { |handle| handle.syswrite(format("%06d\n", number)) }
end

class Run
  include Sidekiq::Worker

  def perform(folder, text)
    sleep(rand(0.001..0.01))
    note("#{folder}/ran", text.delete_prefix("job-").to_i)
  end
end

def produce(folder, count)
  (1..count).each do |number|
    sleep(0.005) while number - File.size("#{folder}/ran") / LINE_BYTES > AHEAD
    begin
      Run.perform_async(folder, format("job-%06d", number))
    rescue Redis::BaseConnectionError, Redis::CommandError => error
      # Redis refuses commands while it loads its data.
      raise if error.is_a?(Redis::CommandError) && !error.message.start_with?("LOADING")
      sleep(0.05)
      retry
    end
    note("#{folder}/acknowledged", number)
  end
end

unless defined?(Sidekiq::CLI)
  task, port, folder, number = ARGV
  ENV["REDIS_URL"] = "redis://127.0.0.1:#{port}/0"
  if task == "work"
    exec("sidekiq", "--require", __FILE__, "--concurrency", number, "--environment", "production", "--timeout", "2")
  end
  produce(folder, number.to_i)
end
